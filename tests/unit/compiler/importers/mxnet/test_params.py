"""Parameters are views of the file, and a damaged file is refused."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.importers.mxnet.params import read_params
from service.core.errors import MalformedModel, OctetError, Unsupported
from tests.support.mxnet_models import params_of

_V2 = 0xF993FAC9


def array(
    *, magic: int = _V2, storage: int = 0, shape: tuple[int, ...] = (2,), flag: int = 5, data: bytes = b"\1\2"
) -> bytes:
    head = struct.pack("<Ii", magic, storage) if magic == _V2 else struct.pack("<I", magic)
    return head + struct.pack(f"<i{len(shape)}q", len(shape), *shape) + struct.pack("<iii", 1, 0, flag) + data


def listed(arrays: list[bytes], names: list[bytes]) -> bytes:
    tail = b"".join(struct.pack("<Q", len(name)) + name for name in names)
    return struct.pack("<QQQ", 0x112, 0, len(arrays)) + b"".join(arrays) + struct.pack("<Q", len(names)) + tail


def test_arrays_by_name() -> None:
    found = read_params(
        listed([array(), array(flag=0, shape=(1, 1), data=struct.pack("<f", 0.5))], [b"arg:a", b"aux:b"])
    )
    np.testing.assert_array_equal(found["a"], np.array([1, 2], np.int8))
    np.testing.assert_array_equal(found["b"], np.array([[0.5]], np.float32))
    assert not found["a"].flags.writeable


def test_a_file_that_mxnet_wrote() -> None:
    found = read_params(params_of("sg_inception"))
    assert found["fc1_weight_quantize"].dtype == np.int8
    assert found["wide_weight"].shape == (6, 8, 1, 5)
    assert found["stem_bn_moving_var"].shape == (8,)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not a list"),
        (listed([array()], [b"a"])[:-1], "end in the middle"),
        (listed([array()], [b"a"]) + b"x", "1 bytes after their end"),
        (listed([array()], [b"a", b"b"]), "contain 1 arrays but 2 names"),
        (listed([array(), array()], [b"arg:a", b"aux:a"]), "twice"),
        (listed([array(magic=7)], [b"a"]), "unknown version 0x7"),
        (listed([array(shape=(-1,))], [b"a"]), r"shape \[-1\]"),
        (listed([array(shape=(1 << 40, 1 << 40))], [b"a"]), "end in the middle"),
        (listed([array(shape=(1,) * 9)], [b"a"]), "9 dimensions"),
        (listed([array()], [b"\xff"]), "UTF-8"),
        (struct.pack("<QQQ", 0x112, 0, 1 << 60), "for which the file is too short"),
    ],
)
def test_the_message_names_the_damage(data: bytes, what: str) -> None:
    with pytest.raises(MalformedModel, match=what):
        read_params(data)


@pytest.mark.parametrize(
    ("damaged", "what"), [(array(storage=1), "storage type 1"), (array(flag=12), "element type 12")]
)
def test_unreadable_parameters_are_named(damaged: bytes, what: str) -> None:
    with pytest.raises(Unsupported, match=what):
        read_params(listed([damaged], [b"a"]))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    for whole in (data, struct.pack("<QQ", 0x112, 0) + data):
        with contextlib.suppress(OctetError):
            read_params(whole)
