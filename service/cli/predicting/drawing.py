"""Pictures with the boxes of a detection drawn on them, for `octet predict --save`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageColor, ImageDraw, ImageFont, ImageOps

from service.cli.predicting.inputs import Item
from service.core.errors import InvalidInput, OctetError
from service.core.models.metadata import ModelMetadata
from service.core.models.picture import format_of
from service.core.models.task import Task
from service.runtime.image import visible_part
from service.runtime.results import Result
from service.runtime.results.boxes import LEAST_SCORE

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_HUES = (210, 30, 140, 330, 270, 60, 180, 0)
_LINE_SHARE, _TEXT_SHARE = 0.005, 0.03  # the width of lines and the height of texts, as shares of the longer edge
_LEAST_TEXT = 10


def save_pictures(
    results: Iterable[tuple[Item, Result | OctetError]],
    path: Path,
    metadata: ModelMetadata,
    size: tuple[int, int] | None,
) -> Iterator[tuple[Item, Result | OctetError]]:
    """Yields the results. Writes each picture with its boxes to `path`, a picture file, or a folder for several.

    Args:
        size: the height and the width of the model's input.

    Raises:
        InvalidInput: the model does not detect objects in pictures, an input is not a picture, or several pictures
            would be written to one file.
    """
    if metadata.task is not Task.DETECT or size is None:
        raise InvalidInput(
            f"--save {path} draws boxes, but the model's task is {metadata.task or 'not set'}",
            hint="--save FILE.npy writes the first output; octet push --task detect sets the task",
        )
    written: set[Path] = set()
    for item, result in results:
        if not isinstance(result, OctetError):
            file = _file_for(item, path, written)
            try:
                draw_boxes(_picture_of(item), result["boxes"], metadata, size).save(file)
            except OSError as error:
                raise InvalidInput(f"{file}: {error.strerror or error}") from error
            written.add(file)
        yield item, result


def draw_boxes(
    data: bytes, boxes: Sequence[Mapping[str, Any]], metadata: ModelMetadata, size: tuple[int, int]
) -> Image.Image:
    """Returns the upright picture with each box, its label and its score, and its key points.

    Args:
        data: a picture file.
        boxes: those of a result, in fractions of the input's width and height.
        size: the height and the width of the model's input.
    """
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    left, top, right, bottom = visible_part(picture.size, (size[1], size[0]), metadata)
    canvas = ImageDraw.Draw(picture)
    longest = max(picture.size)
    line = max(1, round(longest * _LINE_SHARE))
    font = ImageFont.load_default(max(_LEAST_TEXT, round(longest * _TEXT_SHARE)))
    labels = list(dict.fromkeys(box["label"] for box in boxes))
    for box in reversed(boxes):  # the best one is drawn last, over the others
        color = ImageColor.getrgb(f"hsl({_HUES[labels.index(box['label']) % len(_HUES)]}, 80%, 45%)")
        horizontal = sorted(left + box[edge] * (right - left) for edge in ("left", "right"))
        vertical = sorted(top + box[edge] * (bottom - top) for edge in ("top", "bottom"))
        corners = (horizontal[0], vertical[0], horizontal[1], vertical[1])
        canvas.rectangle(corners, outline=color, width=line)
        for point in box.get("points", ()):
            if point.get("score", 1.0) >= LEAST_SCORE:
                center = left + point["x"] * (right - left), top + point["y"] * (bottom - top)
                canvas.circle(center, 2 * line, fill=color, outline="white")
        _write_label(canvas, f"{box['label']} {box['score']:.0%}", corners[:2], color, font)
    return picture


def _write_label(
    canvas: ImageDraw.ImageDraw, text: str, corner: tuple[float, float], color: Any, font: ImageFont.FreeTypeFont | Any
) -> None:
    """Writes a text above a corner, or below it at the upper edge of the picture."""
    height = canvas.textbbox((0, 0), text, font=font)[3]
    above = corner[1] - height if corner[1] >= height else corner[1]
    position = (max(0.0, corner[0]), max(0.0, above))
    canvas.rectangle(canvas.textbbox(position, text, font=font), fill=color)
    canvas.text(position, text, fill="white", font=font)


def _picture_of(item: Item) -> bytes:
    data = item.data if item.file is None else item.file.read_bytes()
    if data is None or format_of(data) is None:
        raise InvalidInput(f"{item.name} is not a picture, so no boxes can be drawn on it")
    return data


def _file_for(item: Item, path: Path, written: set[Path]) -> Path:
    if path.suffix.lower() in _SUFFIXES:
        if written:
            raise InvalidInput(f"{path} is one file, but there are several pictures", hint="pass a folder to --save")
        return path
    path.mkdir(parents=True, exist_ok=True)
    stem = Path(item.name.rpartition("/")[2]).stem or "picture"
    candidates = (path / f"{stem}{number or ''}.png" for number in range(len(written) + 1))
    return next(each for each in candidates if each not in written)
