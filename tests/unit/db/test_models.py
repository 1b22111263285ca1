"""Tests of models and versions, on SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.core.digest import digest_of
from service.core.errors import NotFound
from service.core.models.metadata import NOTHING, ModelMetadata
from service.db import ModelStore
from tests.support.manual_clock import ManualClock

SOURCE, OTHER = digest_of(b"model"), digest_of(b"other model")


def test_versions_count_from_one_for_each_name(models: ModelStore, clock: ManualClock) -> None:
    first = models.push("a", SOURCE, "tflite", 5)
    assert (first.name, first.number, first.source, first.format) == ("a", 1, SOURCE, "tflite")
    assert (first.size_bytes, first.created_at) == (5, clock.now())
    assert models.push("a", OTHER, "tflite", 11).number == 2
    assert models.push("b", OTHER, "tflite", 11).number == 1


def test_the_same_bytes_are_the_same_version(models: ModelStore, clock: ManualClock) -> None:
    first = models.push("a", SOURCE, "tflite", 5)
    models.push("a", OTHER, "tflite", 11)
    clock.advance(60)
    assert models.push("a", SOURCE, "tflite", 5) == first
    assert len(models.versions("a")) == 2


def test_a_model_is_its_newest_version(models: ModelStore) -> None:
    models.push("a", SOURCE, "tflite", 5)
    newest = models.push("a", OTHER, "tflite", 11)
    assert models.get("a") == newest
    assert models.version("a", 2) == newest
    assert [version.number for version in models.versions("a")] == [2, 1]


def test_an_unknown_model_is_not_found(models: ModelStore) -> None:
    models.push("a", SOURCE, "tflite", 5)
    for question in (models.get, models.versions):
        with pytest.raises(NotFound, match="'b'"):
            question("b")
    with pytest.raises(NotFound, match="'b'"):
        models.version("b", 1)
    with pytest.raises(NotFound, match="no version 2"):
        models.version("a", 2)


def test_models_are_listed_by_name_in_pages(models: ModelStore) -> None:
    for name in ("c", "a", "b"):
        models.push(name, SOURCE, "tflite", 5)
    models.push("b", OTHER, "tflite", 11)
    first, cursor = models.list(limit=2)
    rest, end = models.list(limit=2, cursor=cursor)
    assert [(model.name, model.number) for model in first + rest] == [("a", 1), ("b", 2), ("c", 1)]
    assert end is None


def test_every_version_is_listed_by_name_the_oldest_first(models: ModelStore) -> None:
    models.push("b", SOURCE, "tflite", 5)
    models.push("a", OTHER, "tflite", 11)
    models.push("a", SOURCE, "tflite", 5)
    assert [(each.name, each.number) for each in models.all_versions()] == [("a", 1), ("a", 2), ("b", 1)]


def test_a_page_that_ends_with_the_list_is_the_last(models: ModelStore) -> None:
    models.push("a", SOURCE, "tflite", 5)
    assert models.list(limit=1)[1] is None


def test_a_lost_row_is_restored_with_its_number(models: ModelStore) -> None:
    lost = replace(models.push("other", SOURCE, "tflite", 5), name="a", number=7)
    assert models.restore(lost)
    assert not models.restore(lost)
    assert models.get("a") == lost
    assert models.push("a", OTHER, "tflite", 11).number == 8


def test_the_files_of_all_versions_are_listed(models: ModelStore) -> None:
    models.push("a", SOURCE, "tflite", 5)
    models.push("b", SOURCE, "tflite", 5)
    models.push("b", OTHER, "tflite", 11)
    assert set(models.sources()) == {SOURCE, OTHER}


def test_metadata_of_a_version_is_merged(models: ModelStore) -> None:
    models.push("a", SOURCE, "tflite", 5)
    models.push("a", OTHER, "tflite", 11)
    models.describe("a", 1, ModelMetadata(("cat", "dög")))
    described = models.describe("a", 1, ModelMetadata(mean=(0.5,)))
    assert described.metadata == ModelMetadata(("cat", "dög"), (0.5,))
    assert models.version("a", 1) == models.push("a", SOURCE, "tflite", 5) == described
    assert models.metadata("a", 1) == described.metadata
    assert models.version("a", 2).metadata == models.metadata("a", 2) == models.metadata("b", 1) == NOTHING


def test_an_unknown_version_cannot_be_described(models: ModelStore) -> None:
    models.push("a", SOURCE, "tflite", 5)
    for name, number in (("a", 2), ("b", 1)):
        with pytest.raises(NotFound):
            models.describe(name, number, ModelMetadata(mean=(0.5,)))
