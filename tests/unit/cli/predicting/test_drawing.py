"""Tests of boxes on pictures: where they are drawn, and in which files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.cli.predicting.drawing import draw_boxes, save_pictures
from service.cli.predicting.inputs import Item
from service.core.errors import InvalidInput, OctetError
from service.core.models.metadata import ModelMetadata, Resize
from service.core.models.task import Task
from service.runtime.results import Result

DETECT = ModelMetadata(("cat",), task=Task.DETECT)
BOX = {"label": "cat", "score": 0.9, "left": 0.25, "top": 0.5, "right": 0.75, "bottom": 1.0}


def picture(width: int, height: int, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "PNG", **options)
    return buffer.getvalue()


def corners(image: Image.Image) -> tuple[int, int, int, int]:
    """Returns the left, top, right and bottom edges of the drawing on a black picture, its label included."""
    rows, columns = np.nonzero(np.asarray(image).any(axis=-1))
    return int(columns.min()), int(rows.min()), int(columns.max()), int(rows.max())


def edges(metadata: ModelMetadata, width: int, height: int) -> tuple[int, int, int, int]:
    return corners(draw_boxes(picture(width, height), [BOX], metadata, (100, 100)))


def test_a_stretched_picture_is_the_whole_input() -> None:
    left, _, right, bottom = edges(DETECT, 800, 400)
    assert (left, right, bottom) == (200, 600, 399)


def test_a_cropped_picture_has_the_boxes_in_its_center() -> None:
    cropped = ModelMetadata(("cat",), resize=Resize.CROP, task=Task.DETECT)
    left, _, right, bottom = edges(cropped, 800, 400)
    assert (left, right, bottom) == (300, 500, 399)


def test_a_picture_that_is_resized_and_then_cropped() -> None:
    resized = ModelMetadata(("cat",), resize_to=(200,), task=Task.DETECT)  # 800x400 -> 400x200 -> its center
    left, _, right, bottom = edges(resized, 800, 400)
    assert (left, right, bottom) == (350, 450, 300)


def test_boxes_are_drawn_on_the_upright_picture() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    assert draw_boxes(picture(60, 40, exif=exif), [BOX], DETECT, (100, 100)).size == (40, 60)


def test_visible_key_points_are_drawn() -> None:
    points = [{"x": 0.1, "y": 0.2, "score": 0.9}, {"x": 0.9, "y": 0.1, "score": 0.1}]
    image = draw_boxes(picture(200, 200), [{**BOX, "points": points}], DETECT, (100, 100))
    assert [image.getpixel(at) == (0, 0, 0) for at in ((20, 40), (180, 20))] == [False, True]


def results(*names: str) -> Iterator[tuple[Item, Result | OctetError]]:
    for name in names:
        yield Item(name, data=picture(40, 40)), {"boxes": [BOX]}


def test_one_picture_is_written_to_a_file_and_several_to_a_folder(tmp_path: Path) -> None:
    assert len(list(save_pictures(results("a/x.jpg"), tmp_path / "y.png", DETECT, (100, 100)))) == 1
    list(save_pictures(results("a/x.jpg", "b/x.jpg", "c"), tmp_path / "all", DETECT, (100, 100)))
    assert sorted(each.name for each in (tmp_path / "all").iterdir()) == ["c.png", "x.png", "x1.png"]
    with Image.open(tmp_path / "y.png") as written:
        assert written.size == (40, 40)


def test_failed_items_are_passed_on(tmp_path: Path) -> None:
    failed = (Item("a"), InvalidInput("it is damaged"))
    assert list(save_pictures(iter([failed]), tmp_path / "all", DETECT, (100, 100))) == [failed]


@pytest.mark.parametrize(
    ("items", "metadata", "message"),
    [
        (list(results("a", "b")), DETECT, "is one file, but there are several pictures"),
        (list(results("a")), ModelMetadata(("cat",)), "the model's task is not set"),
        ([(Item("a", text="a"), {"boxes": []})], DETECT, "a is not a picture"),
    ],
)
def test_what_cannot_be_drawn_is_refused(items: Any, metadata: ModelMetadata, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        list(save_pictures(iter(items), tmp_path / "y.png", metadata, (100, 100)))
