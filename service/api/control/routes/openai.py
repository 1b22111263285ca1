"""`/v1`: the routes that clients of OpenAI's API use for embeddings."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request

from service.api.access.tenants import short_name, tenant
from service.api.control import wire
from service.api.control.predicting import MAX_SAMPLES, Sample, predictor
from service.api.control.routes.predict import passed_headers
from service.api.injected import ServicesOf
from service.core.errors import InvalidInput, TooLarge

router = APIRouter(prefix="/v1", tags=["openai"])

_MOST_MODELS = 1000


@router.get("/models", summary="List the models", response_model=wire.OpenAIModels)
def list_openai_models(services: ServicesOf) -> wire.OpenAIModels:
    """Up to 1000 models by name, as `openai.models.list` reads them."""
    models, _ = services.models.list(_MOST_MODELS, None, tenant.get())
    return wire.OpenAIModels(
        data=[wire.OpenAIModel(id=short_name(each.name), created=int(each.created_at.timestamp())) for each in models]
    )


@router.post(
    "/embeddings",
    summary="Embed texts",
    response_model=wire.Embeddings,
    responses={
        429: {"description": "The queue is full."},
        503: {"description": "The model has no build that could answer."},
        504: {"description": "The deadline has passed."},
    },
)
async def embed(asked: wire.EmbeddingRequest, request: Request, services: ServicesOf) -> dict[str, Any]:
    """The model's task has to be `embed`. A text that is longer than the model's maximum is truncated."""
    samples = _samples(asked.input)
    path = f"/v2/models/{quote(short_name(asked.model), safe='')}"
    async with predictor(services.settings, path, passed_headers(request)) as model:
        answers = await asyncio.gather(*map(model.answer, samples))
    vectors = [_vector(result, asked.model) for result, _ in answers]
    if asked.dimensions is not None:
        vectors = [_shortened(each, asked.dimensions, model.metadata.text.normalize is True) for each in vectors]
    tokens = sum(count for _, count in answers)
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(each, asked.encoding_format)}
        for index, each in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": asked.model, "usage": usage}


def _samples(given: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]) -> list[Sample]:
    if isinstance(given, str):
        return [Sample(text=given)]
    listed: list[Any] = list(given)
    if not listed:
        raise InvalidInput("input is empty", hint="send a text, a list of texts, or token ids")
    if isinstance(listed[0], int):
        return [Sample(tokens=listed)]
    if len(listed) > MAX_SAMPLES:
        raise TooLarge(f"the request has {len(listed)} texts, but the limit is {MAX_SAMPLES}")
    if not all(each for each in listed if not isinstance(each, str)):
        raise InvalidInput("input contains an empty list of token ids")
    return [Sample(text=each) if isinstance(each, str) else Sample(tokens=each) for each in listed]


def _vector(result: dict[str, Any], name: str) -> list[float]:
    if "embedding" not in result:
        raise InvalidInput(
            f"the model {name!r} does not compute embeddings",
            hint="set the task of its version: octet push --task embed",
        )
    vector: list[float] = result["embedding"]
    return vector


def _shortened(vector: Sequence[float], dimensions: int, is_normalized: bool) -> list[float]:
    """Returns the first numbers of a vector; of a normalized one, normalized again."""
    if dimensions > len(vector):
        raise InvalidInput(f"dimensions is {dimensions}, but the model's vectors have {len(vector)} numbers")
    import numpy as np

    begin = np.array(vector[:dimensions], np.float32)
    length = np.linalg.norm(begin) if is_normalized else 0.0
    return list((begin / length if length > 0 else begin).tolist())


def _encoded(vector: Sequence[float], encoding: str) -> list[float] | str:
    if encoding == "float":
        return list(vector)
    import numpy as np

    return base64.b64encode(np.array(vector, "<f4").tobytes()).decode("ascii")
