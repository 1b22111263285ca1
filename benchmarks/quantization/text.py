"""Pictures of text in Debian's fonts, with the correct result known, for PaddleOCR's networks."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from service.compiler.importers.onnx.file.wire import Budget, fields

Array = np.ndarray[Any, np.dtype[Any]]
_FONTS = Path("/usr/share/fonts/truetype")
_WORDS = Path("/usr/share/common-licenses/Apache-2.0")
LINE, SIGN, PAGE = (48, 320), (48, 192), (160, 320)  # The networks' inputs have this size, [H, W].
_ROW = 36  # The height of a line on a page.
_LEAST_SIDE, _UNCLIP = (
    3,
    1.5,
)  # PaddleOCR's parameters for text: minimum side in pixels, and the ratio by which a line is grown


class Line(NamedTuple):
    """A picture of a line, its text, and the box around it: `[left, top, right, bottom]`."""

    picture: Image.Image
    text: str
    box: Array


def alphabet(model: bytes) -> list[str]:
    """Returns the characters of a recognizer's classes from the file's metadata: a blank first, and a space last."""
    for field in fields(memoryview(model), "Model", Budget()):
        if field.number == 14 and isinstance(field.value, memoryview):  # metadata_props
            key, value = (bytes(part.value).decode() for part in fields(field.value, "Model.metadata", Budget()))
            if key == "character":
                return ["", *value.splitlines(), " "]
    raise SystemExit("the metadata of the recognizer's file lacks the entry `character`")


def lines(count: int, seed: int) -> tuple[Array, list[str]]:
    """Returns lines of two or three words each: `[count, 3, 48, 320]` from -1 to 1, and their text."""
    rng = np.random.default_rng(seed)
    made = [_line(rng, LINE) for _ in range(count)]
    return np.stack([_tensor(line.picture) for line in made]), [line.text for line in made]


def signs(count: int, seed: int) -> tuple[Array, list[int]]:
    """Returns lines, every second one upside down: `[count, 3, 48, 192]`, and 1 for those."""
    rng = np.random.default_rng(seed)
    turned = [index % 2 for index in range(count)]
    made = [_line(rng, SIGN).picture.rotate(180 * turn) for turn in turned]
    return np.stack([_tensor(picture) for picture in made]), turned


def pages(count: int, seed: int) -> tuple[Array, list[Array]]:
    """Returns pages of three lines, normalized as photographs: `[count, 3, 160, 320]`; and for each page the boxes
    around its lines, `[3, 4]`, as `Line.box`.
    """
    rng, made, positions = np.random.default_rng(seed), [], []
    for _ in range(count):
        page, found = Image.new("RGB", PAGE[::-1], _color(rng, 180, 256)), []
        for row in range(3):
            line, width = _line(rng, LINE), int(rng.integers(200, 300))
            corner = (int(rng.integers(0, 20)), 8 + 50 * row)
            page.paste(line.picture.resize((width, _ROW)), corner)
            found.append(line.box * ([width / LINE[1], _ROW / LINE[0]] * 2) + corner * 2)
        made.append((np.asarray(page, np.float32) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225])
        positions.append(np.stack(found))
    return np.ascontiguousarray(np.stack(made).transpose(0, 3, 1, 2), np.float32), positions


def boxes(mask: Array) -> Array:
    """Returns boxes `[count, (left, top, right, bottom)]` around the connected parts of a mask `[H, W]`. Pixels are
    connected if they share a side. Each box is enlarged by the length by which PaddleOCR enlarges its polygons:
    area * 1.5 / perimeter (Vatti's offset; DB, arXiv:1911.08947, 3.5).
    """
    left, found = {(int(x), int(y)) for y, x in np.argwhere(mask)}, []
    while left:
        waiting = [left.pop()]
        low, high = list(waiting[0]), list(waiting[0])
        while waiting:
            x, y = waiting.pop()
            low, high = [min(low[0], x), min(low[1], y)], [max(high[0], x), max(high[1], y)]
            near = {(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)} & left
            left -= near
            waiting += near
        width, height = high[0] - low[0] + 1, high[1] - low[1] + 1
        if min(width, height) >= _LEAST_SIDE:
            wider = width * height * _UNCLIP / (2 * (width + height))
            found.append((low[0] - wider, low[1] - wider, high[0] + 1 + wider, high[1] + 1 + wider))
    return np.array(found).reshape(-1, 4)


def matched(own: Array, real: Array) -> int:
    """Counts the boxes of `own` that overlap a box of `real` by half. Each box of `real` is matched at most once."""
    free = [*real]
    for box in own:
        index = next((index for index, other in enumerate(free) if _overlap(box, other) >= 0.5), None)
        if index is not None:
            free.pop(index)
    return len(real) - len(free)


def _overlap(one: Array, other: Array) -> float:
    """Returns intersection over union."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    both = float(np.prod(np.maximum(sides, 0)))
    return both / (float(np.prod(one[2:] - one[:2])) + float(np.prod(other[2:] - other[:2])) - both)


def read(decided: Array, characters: list[str]) -> str:
    """Returns the text of the most likely classes along a line: repetitions count once, and blanks not at all (CTC).
    Spaces at the ends, which represent an empty margin, are removed.
    """
    kept = [
        position for position, before in zip(decided, [0, *decided[:-1]], strict=True) if position not in (0, before)
    ]
    return "".join(characters[position] for position in kept).strip()


def distance(one: str, other: str) -> int:
    """Returns Levenshtein's distance: the number of characters to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for index, own in enumerate(one, 1):
        last, row[0] = row[0], index
        for column, theirs in enumerate(other, 1):
            last, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, last + (own != theirs))
    return row[-1]


def _line(rng: np.random.Generator, size: tuple[int, int]) -> Line:
    """Returns a line in a random font, size and colors, slightly rotated, with noise."""
    height, width = size
    font = ImageFont.truetype(str(rng.choice(_fonts())), int(rng.integers(20, 31)))
    text = ""
    for word in rng.choice(_words(), 3):
        longer = f"{text} {word}".strip()
        if text and font.getlength(longer) > width - 16:
            break
        text = longer
    paper, ink = (_color(rng, 150, 256), _color(rng, 0, 90))[:: int(rng.choice([1, -1]))]
    picture = Image.new("RGB", (width, height), paper)
    position = (int(rng.integers(4, 12)), int(rng.integers(4, 14)))
    ImageDraw.Draw(picture).text(position, text, font=font, fill=ink)
    degrees = float(rng.uniform(-1.5, 1.5))
    turned = picture.rotate(degrees, Image.Resampling.BILINEAR, fillcolor=paper)
    noisy = np.asarray(turned, np.float32) + rng.normal(0, rng.uniform(0, 20), (height, width, 3))
    left, top, right, bottom = font.getbbox(text)
    corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)]) + position
    turned_corners = _rotate_points(corners, degrees, size)
    box = np.concatenate([turned_corners.min(axis=0), turned_corners.max(axis=0)])
    return Line(Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)), text, box)


def _rotate_points(positions: Array, degrees: float, size: tuple[int, int]) -> Array:
    """Returns the positions to which `Image.rotate` moves points `[…, (x, y)]`: counterclockwise, by the centre."""
    middle, angle = np.array(size[::-1]) / 2, math.radians(degrees)
    x, y = (positions - middle).T
    turned = (x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle))
    return np.asarray(np.stack(turned, axis=1) + middle)


def _color(rng: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in rng.integers(low, high, 3))
    return red, green, blue


def _tensor(picture: Image.Image) -> Array:
    """Returns `[3, H, W]` from -1 to 1."""
    return np.ascontiguousarray(np.asarray(picture, np.float32).transpose(2, 0, 1) / 127.5 - 1)


@cache
def _fonts() -> list[str]:
    """Returns the paths of easily readable fonts, in order."""
    found = sorted(str(path) for path in _FONTS.rglob("*.ttf"))
    kept = [path for path in found if not re.search("ExtraLight|Narrow|TeXGyre", path)]
    if not kept:
        raise SystemExit(f"no fonts in {_FONTS}: install fonts-dejavu and fonts-liberation")
    return kept


@cache
def _words() -> list[str]:
    """Returns words of a license, with punctuation."""
    return sorted({word for word in _WORDS.read_text().split() if 2 <= len(word) <= 10 and word.isascii()})
