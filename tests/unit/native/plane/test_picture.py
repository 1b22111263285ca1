"""Compares the size of a picture that the data plane reads from a file's header (tests/native/plane/picture_probe.cc)
with Pillow's.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.native import built_program


@pytest.fixture(scope="module")
def probe() -> Path:
    return built_program("picture_probe")


def pixels(probe: Path, files: Sequence[bytes]) -> list[str]:
    sent = b"".join(struct.pack("<I", len(each)) + each for each in files)
    return subprocess.run([probe], input=sent, capture_output=True, check=True).stdout.decode().split()


def encode(mode: str, format: str, size: tuple[int, int] = (13, 7), **options: Any) -> bytes:
    file = BytesIO()
    Image.new(mode, size).save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "file",
    [
        *(encode(mode, "PNG") for mode in ("1", "L", "P", "RGB", "RGBA", "I;16")),
        encode("RGB", "JPEG"),
        encode("L", "JPEG", progressive=True, optimize=True),
        encode("CMYK", "JPEG", comment=b"\xff\xc0" * 300),
        encode("RGB", "JPEG", exif=b"Exif\0\0" + bytes(60_000)),
        encode("RGB", "WEBP", lossless=True),
        encode("RGB", "WEBP", quality=50),
        encode("RGBA", "WEBP", lossless=False, exif=b"Exif\0\0"),
        *(encode(mode, "BMP") for mode in ("1", "L", "P", "RGB")),
        *(encode(mode, "GIF") for mode in ("1", "L", "P")),
        encode("RGB", "JPEG").replace(b"\xff\xc0", b"\xff\xff\xff\xc0", 1),  # padding before a marker
    ],
)
def test_a_picture_has_the_size_that_pillow_reads(probe: Path, file: bytes) -> None:
    assert Image.open(BytesIO(file)).size == (13, 7)
    assert pixels(probe, [file]) == [str(13 * 7)]


@pytest.mark.parametrize(
    "file", [b"", b"\xff\xd8\xff", b"GIF89a", b"BM" + bytes(40), encode("RGB", "PNG")[:20], encode("RGB", "WEBP")[:29]]
)
def test_a_file_without_a_header_has_an_unknown_size(probe: Path, file: bytes) -> None:
    assert pixels(probe, [file]) == ["unknown"]


def test_a_size_beyond_32_bits_is_not_cut_off(probe: Path) -> None:
    png = bytearray(encode("L", "PNG"))
    png[16:24] = struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF)
    assert pixels(probe, [bytes(png)]) == [str(0xFFFFFFFF**2)]


def test_damaged_files_end_the_search(probe: Path) -> None:
    dice = random.Random(1)
    whole = [encode("RGB", "JPEG"), encode("L", "JPEG", progressive=True), encode("RGB", "PNG")]
    damaged = []
    for _ in range(3000):
        file = bytearray(dice.choice(whole))
        for _ in range(dice.randint(1, 8)):
            file[dice.randrange(min(len(file), 700))] = dice.randrange(256)
        damaged.append(bytes(file[: dice.randint(0, len(file))]))
    assert len(pixels(probe, damaged)) == len(damaged)
