"""Tests that labels of the wrong number are refused once a build has found the number of classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.control.labels import check_labels
from service.core.errors import InvalidInput
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from tests.support.control_plane import ControlPlane, control_plane, problem


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path) as plane:
        yield plane


def set_labels(plane: ControlPlane, *labels: str) -> httpx.Response:
    return plane.client.patch("/api/v1/models/digits/versions/1", json={"labels": labels})


def facts(*shape: int) -> dict[str, Any]:
    return {"signature": {"outputs": [{"name": "y", "datatype": "INT8", "shape": list(shape)}]}}


def test_labels_are_counted_when_a_build_has_found_the_classes(plane: ControlPlane) -> None:
    plane.push()
    assert set_labels(plane, "a", "b", "c").status_code == 200, "nothing is known about the outputs yet"
    plane.succeed()
    refused = problem(set_labels(plane, "a", "b", "c"), 400, "invalid_input")
    assert refused["detail"] == "3 labels for the 2 classes of the output 'y'"
    assert set_labels(plane, "a", "b").json()["metadata"]["labels"] == ["a", "b"]


@pytest.mark.parametrize("task", [None, Task.CLASSIFY, Task.CLASSIFY_IMAGES])
def test_a_classifier_has_a_label_for_each_class(task: Task | None) -> None:
    check_labels(ModelMetadata(("a", "b", "c"), task=task), facts(1, 3))
    with pytest.raises(InvalidInput, match="2 labels for the 3 classes"):
        check_labels(ModelMetadata(("a", "b"), task=task), facts(1, 3))


@pytest.mark.parametrize(
    ("task", "shape"), [(Task.DETECT, (1, 3)), (Task.CLASSIFY_TOKENS, (1, 3)), (None, (1, 8, 8, 3)), (None, (1, 1))]
)
def test_labels_of_other_outputs_are_not_counted(task: Task | None, shape: tuple[int, ...]) -> None:
    check_labels(ModelMetadata(("a", "b"), task=task), facts(*shape))
