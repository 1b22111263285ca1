"""Tests of labels and preprocessing: which values are valid, and how they are stored."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, Layout, ModelMetadata, Resize, parse_numbers

ALL = ModelMetadata(("cat", "dög"), (0.5, 0.4, 0.3), (0.1,), Resize.CROP, Layout.NCHW)


@pytest.mark.parametrize("metadata", [ALL, NOTHING, ModelMetadata(("cat",)), ModelMetadata(mean=(0.0,))])
def test_metadata_survives_its_text_form(metadata: ModelMetadata) -> None:
    assert ModelMetadata.from_text(metadata.to_text()) == metadata
    assert ModelMetadata.from_json(metadata.to_json()) == metadata


def test_empty_metadata_is_an_empty_text() -> None:
    assert NOTHING.to_text() == ""
    assert not NOTHING
    assert ALL


def test_missing_members_are_taken_from_the_other() -> None:
    assert ModelMetadata(("a",)).over(ALL) == ModelMetadata(("a",), ALL.mean, ALL.std, ALL.resize, ALL.layout)
    assert NOTHING.over(ALL) == ALL.over(NOTHING) == ALL


def test_a_mean_is_never_mixed_with_the_standard_deviation_of_another() -> None:
    assert ModelMetadata(mean=(0.25,)).over(ALL).std == ()


@pytest.mark.parametrize(
    "members",
    [
        {"mean": [1, 2]},
        {"mean": [float("nan")]},
        {"std": [0.0]},
        {"std": [-1.0]},
        {"std": "x"},
        {"mean": 3},
        {"labels": [1]},
        {"labels": 7},
        {"labels": ["x"] * 100_001},
        {"labels": ["x" * 3_000_000]},
        {"resize": "magnify"},
        {"layout": "nwhc"},
    ],
)
def test_invalid_metadata_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ModelMetadata.from_json(members)


def test_numbers_are_separated_by_commas() -> None:
    assert parse_numbers("0.485, 0.456,0.406") == (0.485, 0.456, 0.406)
    assert parse_numbers("") == ()
    with pytest.raises(InvalidInput, match="is not a list of numbers"):
        parse_numbers("0.5;0.5")
