"""MXNet's codes for shapes."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.compiler.importers.mxnet.package import pack
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import MXNET_ONEDNN
from service.core.errors import MalformedModel
from service.core.models.arrays import Array

NO_PARAMS = struct.pack("<QQQQ", 0x112, 0, 0, 0)


def run(op: str, size: tuple[int, ...], /, **attributes: Any) -> Array:
    """Returns the result of an operator on 0, 1, 2, … of `size`."""
    data = {"op": "null", "name": "data", "inputs": []}
    node = {"op": op, "name": "it", "inputs": [[0, 0, 0]], "attrs": {k: str(v) for k, v in attributes.items()}}
    document = {"nodes": [data, node], "heads": [[1, 0, 0]]}
    imported = import_model(pack(json.dumps(document).encode(), NO_PARAMS), shapes={"data": size})
    x = np.arange(np.prod(size), dtype=np.float32).reshape(size)
    return np.asarray(oracle.run(imported.module, get_mode(MXNET_ONEDNN), [x])[0])


# the examples of MXNet's documentation of reshape
@pytest.mark.parametrize(
    ("shape", "code", "reverse", "expected"),
    [
        ((2, 3, 4), (4, 0, 2), False, (4, 3, 2)),
        ((2, 3, 4), (6, 1, -1), False, (6, 1, 4)),
        ((2, 3, 4), (-1,), False, (24,)),
        ((2, 3, 4), (2, -2), False, (2, 3, 4)),
        ((2, 3, 4), (-2, 1, 1), False, (2, 3, 4, 1, 1)),
        ((2, 3, 4, 5), (-3, -3), False, (6, 20)),
        ((2, 3, 4), (0, -3), False, (2, 12)),
        ((2, 3, 4), (-4, 1, 2, -2), False, (1, 2, 3, 4)),
        ((2, 3, 4), (2, -4, -1, 3, -2), False, (2, 1, 3, 4)),
        ((10, 5, 4), (-1, 0), False, (40, 5)),
        ((10, 5, 4), (-1, 0), True, (50, 4)),
    ],
)
def test_codes_of_reshape(
    shape: tuple[int, ...], code: tuple[int, ...], reverse: bool, expected: tuple[int, ...]
) -> None:
    assert run("Reshape", shape, shape=code, reverse=reverse).shape == expected


def test_a_code_that_reads_too_many_sizes_is_malformed() -> None:
    with pytest.raises(MalformedModel, match="reads more sizes"):
        run("Reshape", (2, 3), shape=(0, 0, 0))


def test_slices_with_open_ends_and_negative_steps() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    made = run("slice", (2, 3, 4), begin="(None, 2)", end="(None, None)", step="(None, -1)")
    np.testing.assert_array_equal(made, x[:, 2::-1])
    np.testing.assert_array_equal(run("slice_axis", (2, 3, 4), axis=-1, begin=-3, end=None), x[:, :, -3:])


def test_repeat_tile_and_axes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run("repeat", (2, 3), repeats=2), np.repeat(x, 2))
    np.testing.assert_array_equal(run("repeat", (2, 3), repeats=2, axis=1), np.repeat(x, 2, 1))
    np.testing.assert_array_equal(run("tile", (2, 3), reps="(2, 1, 2)"), np.tile(x, (2, 1, 2)))
    np.testing.assert_array_equal(run("mean", (2, 3), axis="(0,)", exclude=True), x.mean(1))
    np.testing.assert_array_equal(run("sum", (2, 3)), [15])
    np.testing.assert_array_equal(run("round", (2, 3)), x)
    np.testing.assert_array_equal(run("_rminus_scalar", (2, 3), scalar=1.5), np.float32(1.5) - x)
    np.testing.assert_array_equal(run("_not_equal_scalar", (2, 3), scalar=2), (x != 2).astype(np.float32))
    np.testing.assert_array_equal(run("argmax", (2, 3), axis=1), [2, 2])
