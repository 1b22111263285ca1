"""`/v1`: the list of models in the form of OpenAI's API, and the usual route of rerankers. The data plane serves
`/v1/embeddings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request

from service.api.access.tenants import short_name, tenant
from service.api.control import wire
from service.api.control.bounded import REFUSALS, PredictionRoute
from service.api.control.predictions.predicting import Predicted, Predictions, TaskPredictor
from service.api.control.predictions.samples import Sample, limited
from service.api.control.routes.predict import passed_headers
from service.api.injected import PredictionsOf, ServicesOf
from service.core.errors import InvalidInput

router = APIRouter(prefix="/v1", tags=["openai"], route_class=PredictionRoute)

_MOST_MODELS = 1000


@router.get("/models", summary="List the models", response_model=wire.OpenAIModels)
def list_openai_models(services: ServicesOf) -> wire.OpenAIModels:
    """Up to 1000 models by name, as `openai.models.list` reads them."""
    models, _ = services.models.list(_MOST_MODELS, None, tenant.get())
    return wire.OpenAIModels(
        data=[wire.OpenAIModel(id=short_name(each.name), created=int(each.created_at.timestamp())) for each in models]
    )


@router.post(
    "/rerank",
    summary="Rank documents by a query",
    response_model=wire.Ranking,
    response_model_exclude_unset=True,
    responses=REFUSALS,
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
