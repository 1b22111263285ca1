"""Predictions by task of a model of text: the data plane tokenizes, and the result is that of the task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import httpx
import pytest

from service.api.control.predictions import predicting
from service.api.control.predictions.plane_client import PlaneResponse
from service.api.control.predictions.predicting import Predicted, Predictions, TaskPredictor
from service.api.control.predictions.samples import Sample
from service.core.digest import digest_of
from service.core.errors import InvalidInput, TooLarge
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.models.text import TextProcessing
from tests.support import runners
from tests.support.data_plane import connect
from tests.support.predictions import settings_of
from tests.support.runners import encoder
from tests.support.tables import Tables
from tests.support.tokenizers import wordpiece

pytestmark = pytest.mark.anyio

PATH = "/v2/models/encoder"
LONG = "the quick brown fox jumps over the quick fox"


@pytest.fixture
def tables() -> Tables:
    data = wordpiece().to_str().encode()
    path = runners.folder() / "tokenizer.json"
    path.write_bytes(data)
    tables = Tables()
    tables.tokenizers[digest_of(data)] = path
    tables.model("encoder", encoder)
    tables.metadata_by_version["encoder", 1] = ModelMetadata(
        task=Task.EMBED, text=TextProcessing(digest_of(data), len(data))
    )
    tables.model("tensors", encoder)
    return tables


def predictor(client: httpx.AsyncClient, path: str = PATH) -> TaskPredictor:
    return TaskPredictor(Predictions(settings_of(client)), path)


async def test_a_text_gives_the_result_of_the_task(tables: Tables) -> None:
    async with connect(tables) as client:
        found, long = await predictor(client).predict_all([Sample(text="the fox"), Sample(text=LONG)])
    assert found == Predicted({"embedding": [2, 4, 7, 3, 0, 0, 0, 0]}, 4)  # the model's first output is its token ids
    assert long == Predicted({"embedding": [2, 4, 5, 6, 7, 8, 9, 3]}, 8, is_truncated=True)


async def test_an_error_names_the_sample(tables: Tables) -> None:
    async with connect(tables) as client:
        with pytest.raises(TooLarge, match="text 0 has 1048577 bytes") as raised:
            await predictor(client).predict_all([Sample(text="fox"), Sample(text="x" * ((1 << 20) + 1))])
    assert raised.value.message.startswith("input 1: ")


async def test_a_model_without_a_tokenizer_takes_no_text(tables: Tables) -> None:
    async with connect(tables) as client:
        with pytest.raises(InvalidInput, match="has no input 'text'"):
            await predictor(client, "/v2/models/tensors").predict(Sample(text="the fox"))


async def test_metadata_are_requested_once_and_again_after_a_change(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "_REFRESH_S", 3600.0)
    asked: list[str] = []
    async with connect(tables) as client:

        class Noting(Predictions):
            async def send(
                self, method: str, path: str, headers: Mapping[str, str], content: bytes = b""
            ) -> PlaneResponse:
                asked.append(f"{method} {path}")
                return await super().send(method, path, headers, content)

        model = TaskPredictor(Noting(settings_of(client)), PATH)
        for _ in range(3):
            await model.predict_all([Sample(text="the fox"), Sample(text="fox")])
        assert [each for each in asked if each.startswith("GET")] == [f"GET {PATH}/versions/1"]
        monkeypatch.setattr(predicting, "_REFRESH_S", 0.0)
        tables.metadata_by_version["encoder", 1] = replace(tables.metadata_by_version["encoder", 1], task=None)
        while "embedding" in (await model.predict(Sample(text="the fox"))).result:
            await asyncio.sleep(0.01)


async def test_a_new_version_is_described_at_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "_REFRESH_S", 3600.0)
    async with connect(tables) as client:
        model = predictor(client)
        assert "embedding" in (await model.predict(Sample(text="the fox"))).result
        tables.model("encoder", encoder)
        described = replace(tables.metadata_by_version["encoder", 1], task=Task.CLASSIFY)
        tables.metadata_by_version["encoder", 2] = described
        while "classes" not in (result := (await model.predict(Sample(text="the fox"))).result):
            assert "embedding" in result
            await asyncio.sleep(0.01)
