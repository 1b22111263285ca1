"""`/api/v1/models/{name}/predict`: predictions by task, with real values in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from service.api.access.tenants import short_name
from service.api.control import multipart, paths, wire
from service.api.control.body import small_body
from service.api.control.predicting import TaskPredictor
from service.api.control.samples import samples_of
from service.api.injected import PredictionsOf, ServicesOf

router = APIRouter(prefix=f"{paths.PREFIX}/models", tags=["models"])

_PASSED = ("authorization", "traceparent", "tracestate", "x-request-id", "octet-timeout-ms", "octet-affinity")
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FORM = {"schema": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}}
_JSON = {"schema": {"$ref": "#/components/schemas/PredictRequest"}}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": _JSON,
            "image/*": _BINARY,
            "multipart/form-data": _FORM,
            "text/csv": {"schema": {"type": "string"}},
            "text/plain": {"schema": {"type": "string"}},
        },
    }
}


@router.post(
    "/{name}/predict",
    summary="Predict by task",
    response_model=wire.Prediction,
    response_model_exclude_unset=True,
    openapi_extra=_BODY,
    responses={
        413: {"description": "The request is larger than the server accepts."},
        415: {"description": "The body has a type that is not the input of a model."},
        429: {"description": "The queue is full."},
        503: {"description": "The model has no build that could answer."},
        504: {"description": "The deadline has passed."},
    },
)
async def predict_by_task(
    name: wire.PathName,
    request: Request,
    services: ServicesOf,
    predictions: PredictionsOf,
    version: Annotated[int | None, Query(ge=1, le=10**9, description="The version; by default the newest.")] = None,
    top: Annotated[int | None, Query(ge=1, le=10_000, description="The number of classes or boxes.")] = None,
    min_score: Annotated[float, Query(ge=0, le=1, description="Leave out boxes with a lower score.")] = 0.5,
) -> dict[str, Any]:
    """The body is a picture, or JSON with one member:

    - `values`: numbers for the only input, in real units; a quantized input stores them by its scale;
    - `inputs`: numbers for each input, by name;
    - `rows`: a list of these; the response then has `results`. CSV with a header is such a list too;
    - `text`: a text, or a list of texts; `text_pair` has the second text of each pair.

    The form of the result depends on the task of the version: `classes`, `boxes`, `spans`, `embedding`, `score`, or
    `outputs` without a task. All numbers are in real units.
    """
    limit_bytes = services.settings.max_predict_bytes
    body = await _body(request, limit_bytes)
    samples, is_list = samples_of(body, request.headers.get("content-type", ""))
    path = f"/v2/models/{short_name(name)}" + ("" if version is None else f"/versions/{version}")
    model = TaskPredictor(predictions, path, passed_headers(request), top, min_score, computes_spans=True)
    results = await model.predict_all(samples)
    return {"results": [each.to_json() for each in results]} if is_list else results[0].to_json()


def passed_headers(request: Request) -> dict[str, str]:
    """Returns the headers that the data plane receives: the caller's key, its trace and its deadline."""
    return {header: request.headers[header] for header in _PASSED if header in request.headers}


async def _body(request: Request, limit_bytes: int) -> bytes:
    """Returns the body, or the only file of a multipart form."""
    hint, content_type = "OCTET_MAX_PREDICT_BYTES raises the limit", request.headers.get("content-type", "")
    if not multipart.is_form(content_type):
        return await small_body(request, limit_bytes, hint)
    whole = await small_body(request, limit_bytes, hint)

    async def once() -> AsyncIterator[bytes]:
        yield whole

    return b"".join([chunk async for chunk in multipart.only_file(once(), content_type)])
