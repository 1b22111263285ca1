"""Tests of tensors in files: one sample, several samples, and several inputs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.cli.predicting.inputs import Item
from service.cli.predicting.tensors import split_samples
from service.core.errors import InvalidInput
from service.core.models.signature import TensorSpec

ONE = (TensorSpec("x", "INT8", (1, 2)),)
TWO = (*ONE, TensorSpec("y", "FP32", (1, -1)))
VALUES = np.array([[1, 2], [3, 4], [5, 6]], np.int8)


def split(path: Path, specs: tuple[TensorSpec, ...]) -> list[tuple[str, dict[str, Any]]]:
    found = list(split_samples(Item(path.name, file=path), specs))
    assert [each.problem for each in found] == [None] * len(found)
    return [(each.name, {name: array.tolist() for name, array in (each.arrays or {}).items()}) for each in found]


def test_the_first_axis_counts_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    expected = [("a.npy[0]", {"x": [[1, 2]]}), ("a.npy[1]", {"x": [[3, 4]]}), ("a.npy[2]", {"x": [[5, 6]]})]
    assert split(tmp_path / "a.npy", ONE) == expected


def test_arrays_of_several_inputs_are_split_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=np.ones((3, 4), np.float32), x=VALUES)
    assert split(tmp_path / "a.npz", TWO)[2] == ("a.npz[2]", {"y": [[1.0] * 4], "x": [[5, 6]]})


def test_one_sample_may_lack_its_batch_axis(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", VALUES[0])
    assert split(tmp_path / "a.npz", ONE) == [("a.npz", {"x": [[1, 2]]})]


def test_another_shape_is_sent_as_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES.T)
    assert split(tmp_path / "a.npy", ONE) == [("a.npy", {"x": VALUES.T.tolist()})]


def test_downloaded_tensors_are_split_too() -> None:
    buffer = io.BytesIO()
    np.save(buffer, VALUES)
    assert len(list(split_samples(Item("http://a/x", data=buffer.getvalue()), ONE))) == 3


def test_other_items_stay_as_they_are() -> None:
    items = [Item("a", text="a"), Item("b", data=b"\xff\xd8\xff a picture"), Item("c.png", file=Path("c.png"))]
    assert [each for item in items for each in split_samples(item, ONE)] == items


@pytest.mark.parametrize(
    ("arrays", "message"),
    [({"z": VALUES, "x": VALUES}, "contains z, x, but the inputs are x, y"), ({}, "contains no arrays")],
)
def test_arrays_have_the_names_of_the_inputs(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    (item,) = split_samples(Item("a.npz", file=tmp_path / "a.npz"), TWO)
    assert isinstance(item.problem, InvalidInput)
    assert message in item.problem.message


@pytest.mark.parametrize("data", [b"PK\x03\x04junk", b"\x93NUMPY junk"])
def test_a_damaged_file_is_the_problem_of_its_item(data: bytes) -> None:
    (item,) = split_samples(Item("a", data=data), ONE)
    assert item.problem is not None


def test_python_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    (item,) = split_samples(Item("a.npy", file=tmp_path / "a.npy"), ONE)
    assert item.problem is not None
