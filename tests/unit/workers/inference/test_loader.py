"""Tests of the metadata that the data plane receives for loaded models, and of the files that models keep in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.digest import digest_of
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.models.text import TextProcessing
from tests.support.fake_plane import FakePlane
from tests.support.tables import Tables
from tests.support.waiting import eventually_async
from tests.unit.workers.inference.conftest import Serving, blank

pytestmark = pytest.mark.anyio

TOKENIZER = digest_of(b"{}")
METADATA = ModelMetadata(labels=("no", "yes"), task=Task.CLASSIFY, text=TextProcessing(TOKENIZER, 2))


async def test_the_data_plane_receives_the_task_and_the_file_of_the_tokenizer(
    plane: FakePlane, serving: Serving, tmp_path: Path
) -> None:
    tables = Tables()
    tables.model("m", blank)
    tables.metadata_by_version["m", 1] = METADATA
    tables.tokenizers[TOKENIZER] = tmp_path / "tokenizer"
    async with serving(tables) as registry:
        await registry.resolve("m")
        (order,) = plane.described.values()
        assert order == {
            "type": "describe",
            "labels": ["no", "yes"],
            "parameters": METADATA.to_json(),
            "text": METADATA.text.to_json(),
            "tokenizer": str(tmp_path / "tokenizer"),
        }
        assert tables.held == {TOKENIZER}


async def test_a_model_whose_tokenizer_is_lost_is_still_served(plane: FakePlane, serving: Serving) -> None:
    tables = Tables()
    tables.model("m", blank)
    tables.metadata_by_version["m", 1] = METADATA
    async with serving(tables) as registry:
        await registry.resolve("m")
        (order,) = plane.described.values()
        assert "tokenizer" not in order


async def test_a_new_tokenizer_of_a_loaded_model_is_sent_and_held(
    plane: FakePlane, serving: Serving, tmp_path: Path
) -> None:
    tables = Tables()
    tables.model("m", blank)
    async with serving(tables) as registry:
        await registry.resolve("m")
        assert plane.described == {}
        tables.tokenizers[TOKENIZER] = tmp_path
        tables.metadata_by_version["m", 1] = METADATA
        await registry.refresh("m")
        await eventually_async(lambda: tables.held == {TOKENIZER})
        (order,) = plane.described.values()
        assert order["tokenizer"] == str(tmp_path)
