"""Predictions by task of a model of text: the data plane tokenizes, and the result is that of the task."""

from __future__ import annotations

import pytest

from service.api.control.predicting import Sample, TaskPredictor
from service.core.digest import digest_of
from service.core.errors import InvalidInput
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.models.text import TextProcessing
from tests.support import runners
from tests.support.data_plane import connect
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


async def test_a_text_gives_the_result_of_the_task(tables: Tables) -> None:
    async with connect(tables) as client:
        model = TaskPredictor(client, PATH, (await client.get(PATH)).json(), None)
        found = await model.predict(Sample(text="the fox"))
        long = await model.predict(Sample(text=LONG))
    assert found == {"embedding": [2, 4, 7, 3, 0, 0, 0, 0]}  # the model's first output is its token ids
    assert long == {"embedding": [2, 4, 5, 6, 7, 8, 9, 3], "truncated": True}


async def test_a_model_without_a_tokenizer_takes_no_text(tables: Tables) -> None:
    path = "/v2/models/tensors"
    async with connect(tables) as client:
        model = TaskPredictor(client, path, (await client.get(path)).json(), None)
        with pytest.raises(InvalidInput, match="has no tokenizer"):
            await model.predict(Sample(text="the fox"))
