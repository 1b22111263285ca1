"""A data plane with the control plane's routes for predictions by task, and models of text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from service.api.control.predictions.predicting import Predictions
from service.api.control.routes import predict
from service.api.control.routes.compatibility import openai
from service.core.digest import digest_of
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Activation, Task
from service.core.models.text import TextProcessing
from service.core.settings import Settings
from tests.support import runners
from tests.support.data_plane import DataPlane, client_of
from tests.support.tables import Tables
from tests.support.tokenizers import wordpiece


def text_metadata(task: Task, activation: Activation | None, labels: tuple[str, ...] = ()) -> ModelMetadata:
    """Returns the metadata of a model of text with the tokenizer `wordpiece`."""
    data = wordpiece().to_str().encode()
    text = TextProcessing(digest_of(data), len(data))
    return ModelMetadata(labels, task=task, activation=activation, text=text)


def text_tables() -> Tables:
    """Returns tables that contain the tokenizer `wordpiece`."""
    data = wordpiece().to_str().encode()
    path = runners.folder() / "tokenizer.json"
    path.write_bytes(data)
    tables = Tables()
    tables.tokenizers[digest_of(data)] = path
    return tables


def settings_of(client: httpx.AsyncClient) -> Settings:
    """Returns settings with the address of the data plane that `client` is connected to."""
    return Settings(data_dir=Path("/nonexistent"), host=client.base_url.host, port=client.base_url.port or 0)


@asynccontextmanager
async def predictions_of(tables: Tables) -> AsyncIterator[httpx.AsyncClient]:
    """Starts a data plane that forwards predictions by task to their routes, and yields an HTTP client."""
    plane = DataPlane(tables)
    plane.app.include_router(openai.router)
    plane.app.include_router(predict.router)
    async with client_of(plane) as client:
        predictions = Predictions(settings_of(client))
        plane.app.state.predictions = predictions
        plane.app.state.jobs = None  # the tests of these routes start no jobs
        yield client
        predictions.close()
