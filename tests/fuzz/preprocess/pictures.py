"""Damaged pictures, and pictures that are larger than they look."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

Draw = Callable[[random.Random], bytes]
_PNG = b"\x89PNG\r\n\x1a\n"
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 20_000, 65_500, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def picture(rng: random.Random) -> bytes:
    """Returns the bytes of a file that claims to be a picture."""
    if rng.random() < 0.25:
        return rng.choice(_BOMBS)(rng)
    data = _valid(rng)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        data = rng.choice(_MUTATIONS)(data, rng)
    return data


def _valid(rng: random.Random) -> bytes:
    width, height = rng.choice(((1, 1), (8, 8), (17, 3), (64, 48), (640, 480), (1, 4000)))
    noise = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (height, width, 4), np.uint8)
    mode = rng.choice(("RGB", "RGBA", "L", "P", "1", "CMYK", "LA", "I;16"))
    image = Image.fromarray(noise, "RGBA") if mode != "I;16" else Image.fromarray(noise.view("<u2")[..., 0])
    if mode != "I;16":
        image = image.convert(mode)
    form = rng.choice(("JPEG", "PNG", "WEBP", "BMP", "GIF"))
    choices: dict[str, dict[str, Any]] = {
        "JPEG": {"quality": rng.choice((1, 75, 100)), "progressive": rng.random() < 0.5, "exif": _exif(rng)},
        "PNG": {"optimize": rng.random() < 0.3, "exif": _exif(rng)},
        "WEBP": {"lossless": rng.random() < 0.5, "exif": _exif(rng)},
        "GIF": {"save_all": rng.random() < 0.5, "append_images": [image.convert("L")] * rng.choice((0, 1, 5))},
    }
    file = BytesIO()
    try:
        image.save(file, form, **choices.get(form, {}))
    except (OSError, ValueError):  # the format has no such mode
        image.convert("RGB").save(file, form)
    return file.getvalue()


def _exif(rng: random.Random) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = rng.choice((1, 3, 6, 8, 0, 99))
    return exif.tobytes()


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 64)) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _flip_head(data: bytes, rng: random.Random) -> bytes:
    return _flip(data[:64], rng) + data[64:]


def _overwrite_number(data: bytes, rng: random.Random) -> bytes:
    """Replaces two or four bytes near the beginning, where formats have sizes and offsets, by an extreme number."""
    size, order = rng.choice((2, 4)), rng.choice("<>")
    number = rng.choice(_EXTREMES) & (0xFFFF if size == 2 else 0xFFFFFFFF)
    at = rng.randrange(max(1, min(len(data), 128)))
    return data[:at] + struct.pack(order + ("H" if size == 2 else "I"), number) + data[at + size :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(data) + 1)
    end = min(len(data), begin + rng.choice((1, 16, 400)))
    return data[:end] + data[begin:end] * rng.choice((1, 10, 1000)) + data[end:]


def _drop(data: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(data) + 1)
    return data[:begin] + data[begin + rng.choice((1, 4, 100)) :]


def _mend_checksums(data: bytes, rng: random.Random) -> bytes:
    """Makes the checksums of a PNG's chunks valid, so that a change of a chunk is not the reason to refuse it."""
    if not data.startswith(_PNG):
        return data
    found, at = [_PNG], len(_PNG)
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        content = data[at + 8 : at + 8 + size]
        found.append(_chunk(data[at + 4 : at + 8], content))
        at += 12 + size
    return b"".join(found)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _png(width: int, height: int, *chunks: bytes, depth: int = 8, kind: int = 2, interlace: int = 0) -> bytes:
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlace))
    return _PNG + head + b"".join(chunks) + _chunk(b"IEND", b"")


def _png_bomb(rng: random.Random) -> bytes:
    """Returns a small PNG with many pixels, of which some or all are in the file."""
    side = rng.choice((5_000, 5_790, 8_000, 40_000, 1 << 30))
    rows = zlib.compress(bytes((3 * 4_000 + 1) * 4_000 if rng.random() < 0.3 else 1_000), 9)
    return _png(side, side, _chunk(b"IDAT", rows), interlace=rng.choice((0, 1)))


def _text_bomb(rng: random.Random) -> bytes:
    """Returns a PNG whose compressed texts, profiles or chunks are large or many."""
    zeros = zlib.compress(bytes(rng.choice((1 << 20, 64 << 20))), 9)
    pixel = _chunk(b"IDAT", zlib.compress(bytes(4)))
    name = rng.choice((b"zTXt", b"iCCP"))
    bombs = [_chunk(name, b"k%d\0\0" % index + zeros) for index in range(rng.choice((1, 4)))]
    many = [_chunk(b"tEXt", b"k\0v")] * rng.choice((0, 20_000))
    return _png(1, 1, *bombs, *many, pixel)


def _empty_blocks(rng: random.Random) -> bytes:
    """Returns a PNG whose compressed data consists of empty pieces."""
    stream = zlib.compressobj()
    pieces = b"".join(stream.compress(b"") + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(20_000))
    return _png(8, 8, *[_chunk(b"IDAT", pieces)] * rng.choice((1, 8)))


def _gif_bomb(rng: random.Random) -> bytes:
    """Returns a GIF with a large screen, and many frames of one pixel."""
    side = rng.choice((100, 8_000, 65_535))
    head = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, *((side, side) if rng.random() < 0.5 else (1, 1)), 0) + b"\2\2D\1\0"
    return head + frame * rng.choice((1, 1_000)) + b";"


def _bmp_bomb(rng: random.Random) -> bytes:
    """Returns a BMP with a large size and run lengths."""
    side = rng.choice((4_000, 20_000, 0x7FFFFFFF))
    info = struct.pack(
        "<IiiHHIIiiII", 40, side, rng.choice((side, -side, 1)), 1, 8, rng.choice((0, 1)), 0, 0, 0, 256, 0
    )
    runs = bytes((255, 1)) * rng.choice((10, 100_000)) + b"\0\1"
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + 1024) + info + bytes(1024) + runs


def _jpeg_bomb(rng: random.Random) -> bytes:
    """Returns a JPEG with a large size, or a progressive one with very many scans."""
    file = BytesIO()
    Image.new("L", (256, 256)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    frame = data.index(b"\xff\xc2")
    if rng.random() < 0.5:
        side = rng.choice((8_000, 65_500))
        return data[: frame + 5] + struct.pack(">HH", side, side) + data[frame + 9 :]
    scan = data.rindex(b"\xff\xda")
    return data[:scan] + data[scan:-2] * rng.choice((100, 5_000)) + data[-2:]


_MUTATIONS: Sequence[Callable[[bytes, random.Random], bytes]] = (
    *(_truncate, _flip, _flip, _flip_head, _overwrite_number, _overwrite_number, _repeat, _drop, _mend_checksums),
)
_BOMBS: Sequence[Draw] = (_png_bomb, _text_bomb, _empty_blocks, _gif_bomb, _bmp_bomb, _jpeg_bomb)
