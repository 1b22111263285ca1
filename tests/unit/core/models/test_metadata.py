"""Tests of labels and preprocessing: which values are valid, and how they are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.core.digest import digest_of
from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, Channels, Layout, ModelMetadata, Resize, parse_numbers
from service.core.models.task import Activation, Task
from service.core.models.text import Pooling, TextProcessing

TEXT = TextProcessing(digest_of(b"{}"), 2, max_length=256, pooling=(Pooling.MEAN,))
PICTURE = ModelMetadata(
    mean=(0.5, 0.4, 0.3),
    std=(0.1,),
    resize=Resize.CROP,
    layout=Layout.NCHW,
    resize_to=(256,),
    channels=Channels.BGR,
)
ALL = replace(PICTURE, labels=("cat", "dög"), task=Task.EMBED, activation=Activation.SOFTMAX, text=TEXT)


@pytest.mark.parametrize("metadata", [ALL, NOTHING, ModelMetadata(("cat",)), ModelMetadata(mean=(0.0,))])
def test_metadata_survives_its_text_form(metadata: ModelMetadata) -> None:
    assert ModelMetadata.from_text(metadata.to_text()) == metadata
    assert ModelMetadata.from_json(metadata.to_json()) == metadata


def test_empty_metadata_is_an_empty_text() -> None:
    assert NOTHING.to_text() == ""
    assert not NOTHING
    assert ALL


def test_missing_members_are_taken_from_the_other() -> None:
    assert ModelMetadata(("a",)).over(ALL) == replace(ALL, labels=("a",))
    assert ModelMetadata(text=TextProcessing(max_length=5)).over(ALL) == replace(ALL, text=replace(TEXT, max_length=5))
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
        {"task": "chat"},
        {"resample": "cubic"},
        {"resize_to": [1, 2, 3]},
        {"resize_to": [0]},
        {"resize_to": [1.5]},
        {"resize_to": [1 << 15]},
        {"activation": "relu"},
        {"text": {"pooling": "median"}},
        {"text": [1]},
    ],
)
def test_invalid_metadata_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ModelMetadata.from_json(members)


def test_the_members_of_pictures_are_selected() -> None:
    assert ALL.of_pictures == PICTURE


def test_a_file_cannot_name_a_stored_tokenizer() -> None:
    found = ModelMetadata.from_file({"metadata": ALL.to_json()})
    assert found == replace(ALL, text=TextProcessing(max_length=256, pooling=(Pooling.MEAN,)))
    assert ModelMetadata.from_file({}) == NOTHING


def test_numbers_are_separated_by_commas() -> None:
    assert parse_numbers("0.485, 0.456,0.406") == (0.485, 0.456, 0.406)
    assert parse_numbers("") == ()
    with pytest.raises(InvalidInput, match="is not a list of numbers"):
        parse_numbers("0.5;0.5")
