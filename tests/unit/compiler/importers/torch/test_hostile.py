"""Each hostile archive is refused with a message. Nothing in it is executed, unpacked or resolved."""

from __future__ import annotations

import io
import random
import warnings
import zipfile
from contextlib import suppress
from typing import Any

import pytest

from service.compiler.importers.torch import import_torchscript
from service.core.errors import MalformedModel, OctetError
from tests.support.torchscript import EMPTY_MODULE, FIXTURES, archive, imported, script

SHAPES = {"": (2, 3, 12, 12)}


@pytest.mark.parametrize("name", ["../evil.py", "net/../../evil", "/etc/passwd", "other/x", "net/a\\b", "net//a"])
def test_a_name_outside_the_folder_is_refused(name: str) -> None:
    file = io.BytesIO(script(["return x"]))
    with zipfile.ZipFile(file, "a") as written:
        written.writestr(zipfile.ZipInfo(name), b"")
    with pytest.raises(MalformedModel, match="zip archive has"):
        import_torchscript(file.getvalue(), shapes=SHAPES)


def test_a_repeated_record_is_refused() -> None:
    file = io.BytesIO(script(["return x"]))
    with zipfile.ZipFile(file, "a") as written, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written.writestr("net/data.pkl", EMPTY_MODULE)
    with pytest.raises(MalformedModel, match="twice"):
        import_torchscript(file.getvalue(), shapes=SHAPES)


@pytest.mark.parametrize("record", ["code/__torch__.py", "data/0"])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(record: str) -> None:
    data = archive({"data.pkl": EMPTY_MODULE, record: b"\0" * (1 << 26)}, method=zipfile.ZIP_DEFLATED)
    assert len(data) < 1 << 17
    with pytest.raises(MalformedModel, match="which is too large"):
        import_torchscript(data, shapes=SHAPES)


def test_a_false_size_is_refused() -> None:
    data = archive({"data.pkl": EMPTY_MODULE, "code/__torch__.py": b"x = 1\n" * 99}, method=zipfile.ZIP_DEFLATED)
    index = data.rindex(b"PK\x01\x02", 0, data.index(b"code/__torch__.py", data.index(b"PK\x01\x02")))
    lied = data[: index + 24] + (7).to_bytes(4, "little") + data[index + 28 :]
    with pytest.raises(MalformedModel):
        import_torchscript(lied, shapes=SHAPES)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_mutations_of_valid_files_are_refused_with_a_message(path: Any) -> None:
    """The mutations change bytes of the file, or of its records within a valid archive. The result is a model or an
    OctetError.
    """
    rng, data = random.Random(path.stem), path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as whole:
        records = {info.filename.partition("/")[2]: whole.read(info) for info in whole.infolist()}
    programs = [name for name in records if name.endswith((".pkl", ".py")) and records[name]]
    for number in range(40):
        if number % 4 == 0:
            changed = _mutated(data, rng)
        else:
            name = rng.choice(programs)
            changed = archive({**records, name: _mutated(records[name], rng)})
        with suppress(OctetError):
            import_torchscript(changed, shapes=SHAPES)


def _mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        position = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[position] = rng.randrange(256)
            case 1:
                changed[position] ^= 1 << rng.randrange(8)
            case 2:
                del changed[position : position + rng.randrange(1, 9)]
                changed = changed or bytearray(b"x")
            case _:
                start = rng.randrange(len(changed))
                changed[position:position] = changed[start : start + rng.randrange(1, 33)]
    return bytes(changed)


def test_the_valid_files_are_read() -> None:
    assert [imported(path).format for path in FIXTURES] == ["torchscript"] * len(FIXTURES)
