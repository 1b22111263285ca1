"""Tests of setting a version's labels and preprocessing over the API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.control_plane import ControlPlane, problem

URL = "/api/v1/models/digits/versions/1"
NOTHING: dict[str, Any] = {
    "labels": [],
    "mean": [],
    "std": [],
    "resize": None,
    "layout": None,
    "resample": None,
    "resize_to": [],
    "task": None,
    "activation": None,
    "text": None,
    "channels": None,
    "columns": [],
    "sampling_rate": None,
    "standardize": None,
}
LABELS = [str(digit) for digit in range(10)]


def metadata(plane: ControlPlane) -> Any:
    return plane.client.get(URL).json()["metadata"]


def test_a_push_sets_the_preprocessing_of_pictures(plane: ControlPlane) -> None:
    plane.push(mean="0.5,0.4,0.3", std="0.25", resize="crop", layout="nhwc")
    expected = {"labels": [], "mean": [0.5, 0.4, 0.3], "std": [0.25], "resize": "crop", "layout": "nhwc"}
    assert metadata(plane) == NOTHING | expected


def test_a_later_change_keeps_the_other_members(plane: ControlPlane) -> None:
    plane.push(mean="0.5", std="0.25")
    answer = plane.client.patch(URL, json={"labels": LABELS})
    assert answer.status_code == 200
    assert answer.json()["metadata"] == metadata(plane)
    assert metadata(plane) == NOTHING | {"labels": LABELS, "mean": [0.5], "std": [0.25]}
    plane.push(resize="crop")
    assert metadata(plane)["labels"] == LABELS


def test_a_model_has_no_metadata_by_default(plane: ControlPlane) -> None:
    plane.push()
    assert metadata(plane) is None


@pytest.mark.parametrize("query", [{"mean": "x"}, {"mean": "1,2"}, {"std": "0"}])
def test_invalid_metadata_is_refused_before_anything_is_stored(plane: ControlPlane, query: dict[str, Any]) -> None:
    problem(plane.push(**query), 400, "invalid_input")
    assert plane.client.get("/api/v1/models").json()["models"] == []


def test_the_labels_of_a_large_model_fit_in_a_request(plane: ControlPlane) -> None:
    plane.push()
    labels = [f"class number {index}" for index in range(50_000)]
    assert plane.client.patch(URL, json={"labels": labels}).status_code == 200
    assert metadata(plane)["labels"] == labels
    problem(plane.client.patch(URL, content=b" " * (13 << 20)), 413, "too_large")


def test_a_missing_model_gets_no_metadata(plane: ControlPlane) -> None:
    problem(plane.client.patch(URL, json={"labels": LABELS}), 404, "not_found")
