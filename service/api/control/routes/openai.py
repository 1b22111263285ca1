"""`/v1`: the routes that clients of OpenAI's API use for embeddings, and the usual route of rerankers."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request

from service.api.access.tenants import short_name, tenant
from service.api.control import wire
from service.api.control.predicting import Predicted, Predictions, TaskPredictor
from service.api.control.routes.predict import passed_headers
from service.api.control.samples import Sample, limited
from service.api.injected import PredictionsOf, ServicesOf
from service.core.errors import InvalidInput
from service.core.models.text import TextProcessing

router = APIRouter(prefix="/v1", tags=["openai"])

_MOST_MODELS = 1000
_REFUSALS: dict[int | str, dict[str, Any]] = {
    429: {"description": "The queue is full."},
    503: {"description": "The model has no build that could answer."},
    504: {"description": "The deadline has passed."},
}


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
    response_model_exclude_unset=True,
    responses=_REFUSALS,
)
async def embed(asked: wire.EmbeddingRequest, request: Request, predictions: PredictionsOf) -> dict[str, Any]:
    """The model's task has to be `embed`. A text that is longer than the model's maximum is truncated."""
    samples = _samples(asked.input)
    model = _model(predictions, asked.model, request)
    if asked.prompt_name is not None:
        processing = (await model.describe()).metadata.text
        samples = [_prompted(each, asked.prompt_name, processing) for each in samples]
    answers = await model.predict_all(samples)
    vectors = [_vector(each.result, asked.model) for each in answers]
    if asked.dimensions is not None:
        is_normalized = (await model.describe()).metadata.text.normalize is True
        vectors = [_shortened(each, asked.dimensions, is_normalized) for each in vectors]
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, asked.encoding_format)}
        | ({"truncated": True} if answer.is_truncated else {})
        for index, (vector, answer) in enumerate(zip(vectors, answers, strict=True))
    ]
    return {"object": "list", "data": data, "model": asked.model, "usage": _usage(answers)}


@router.post(
    "/rerank",
    summary="Rank documents by a query",
    response_model=wire.Ranking,
    response_model_exclude_unset=True,
    responses=_REFUSALS,
)
async def rerank(asked: wire.RerankRequest, request: Request, predictions: PredictionsOf) -> dict[str, Any]:
    """The model's task has to be `rerank`, or `classify` with one class. A query and a document that together are
    longer than the model's maximum are truncated. Documents with equal scores keep their order.
    """
    if not asked.documents:
        raise InvalidInput("documents is empty", hint="send a list of strings")
    texts = [each if isinstance(each, str) else each.text for each in asked.documents]
    samples = limited([Sample(text=asked.query, pair=text) for text in texts])
    answers = await _model(predictions, asked.model, request).predict_all(samples)
    scores = [_score(each.result, asked.model) for each in answers]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.top_n]
    results = [
        {"index": index, "relevance_score": scores[index]}
        | ({"document": {"text": texts[index]}} if asked.return_documents else {})
        | ({"truncated": True} if answers[index].is_truncated else {})
        for index in order
    ]
    return {"object": "list", "model": asked.model, "results": results, "usage": _usage(answers)}


def _model(predictions: Predictions, name: str, request: Request) -> TaskPredictor:
    path = f"/v2/models/{quote(short_name(name), safe='')}"
    return TaskPredictor(predictions, path, passed_headers(request))


def _usage(answers: Sequence[Predicted]) -> dict[str, int]:
    tokens = sum(each.tokens for each in answers)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _samples(given: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]) -> list[Sample]:
    if isinstance(given, str):
        return [Sample(text=given)]
    listed: list[Any] = list(given)
    if not listed:
        raise InvalidInput("input is empty", hint="send a text, a list of texts, or token ids")
    if isinstance(listed[0], int):
        return [Sample(tokens=listed)]
    if not all(each for each in listed if not isinstance(each, str)):
        raise InvalidInput("input contains an empty list of token ids")
    return limited([Sample(text=each) if isinstance(each, str) else Sample(tokens=each) for each in listed])


def _prompted(sample: Sample, name: str, processing: TextProcessing) -> Sample:
    if sample.text is None:
        raise InvalidInput("token ids cannot have a prompt", hint="send texts, or leave out prompt_name")
    return replace(sample, text=processing.with_prompt(sample.text, name))


def _score(result: dict[str, Any], name: str) -> float:
    """Returns the score of a reranker, or of a classifier with one class."""
    if "score" in result:
        return float(result["score"])
    if len(classes := result.get("classes", ())) == 1:
        return float(classes[0]["score"])
    raise InvalidInput(
        f"the model {name!r} does not compute one score for a query and a document",
        hint="set the task of its version: octet push --task rerank",
    )


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
