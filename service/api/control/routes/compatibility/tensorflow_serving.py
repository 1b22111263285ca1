"""`/v1/models/{name}`: the REST API of TensorFlow Serving, for clients that have only this one."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from service.api.access.tenants import short_name
from service.api.control import wire
from service.api.control.body import small_body
from service.api.control.bounded import REFUSALS
from service.api.control.predictions import tensorflow_serving
from service.api.control.predictions.predicting import Predictions, TaskPredictor
from service.api.control.routes.models import statuses_of
from service.api.control.routes.predict import passed_headers
from service.api.injected import PredictionsOf, ServicesOf
from service.api.services import Services
from service.core.errors import InvalidInput, NotFound
from service.core.models.alias import ALIAS_PATTERN

router = APIRouter(prefix="/v1/models", tags=["tensorflow-serving"])

_Label = Annotated[str, Path(pattern=ALIAS_PATTERN, description="An alias, such as `stable`.")]


@router.get("/{name}", summary="Get the status of a model", response_model=wire.TensorFlowModel)
async def get_status(name: wire.PathName, services: ServicesOf) -> Any:
    """The members are those of TensorFlow Serving's model status, and those of a model in OpenAI's API."""
    versions = await run_in_threadpool(_statuses, services, name)
    newest = await run_in_threadpool(services.models.get, name)
    created = int(newest.created_at.timestamp())
    return wire.TensorFlowModel(id=short_name(name), created=created, model_version_status=versions)


@router.get(
    "/{name}/versions/{version}", summary="Get the status of a version of a model", response_model=wire.TensorFlowStatus
)
def get_version_status(name: wire.PathName, version: wire.PathVersion, services: ServicesOf) -> Any:
    found = [each for each in _statuses(services, name) if each["version"] == str(version)]
    if not found:
        raise NotFound(f"model {short_name(name)!r} has no version {version}")
    return {"model_version_status": found}


@router.get("/{name}/metadata", summary="Get the signature of a model", response_model=wire.TensorFlowMetadata)
async def get_metadata(name: wire.PathName, request: Request, predictions: PredictionsOf) -> Any:
    """The inputs and outputs as `:predict` takes and returns them. Quantized tensors are `DT_FLOAT`."""
    return await _describe(predictions, request, name, "")


@router.get(
    "/{name}/versions/{version}/metadata",
    summary="Get the signature of a version of a model",
    response_model=wire.TensorFlowMetadata,
)
async def get_version_metadata(
    name: wire.PathName, version: wire.PathVersion, request: Request, predictions: PredictionsOf
) -> Any:
    return await _describe(predictions, request, name, str(version))


async def _predict(
    request: Request, services: Services, predictions: Predictions, name: str, version: str
) -> dict[str, Any]:
    asked = await _read_request(request, services.settings.max_predict_bytes)
    model = TaskPredictor(predictions, _path(name, version), passed_headers(request))
    if asked.signature_name not in (None, "", tensorflow_serving.SIGNATURE):
        raise InvalidInput(
            f"the model has no signature {asked.signature_name!r}",
            hint=f"leave out signature_name, or send {tensorflow_serving.SIGNATURE}",
        )
    if (asked.instances is None) == (asked.inputs is None):
        raise InvalidInput(
            "the request needs either instances or inputs",
            hint='send {"instances": [ROW, …]}, or {"inputs": {"NAME": [ROW, …]}}',
        )
    if asked.instances is not None:
        return tensorflow_serving.answer_rows(await model.compute_all(tensorflow_serving.rows_in(asked.instances)))
    samples, is_batch = tensorflow_serving.columns_in(asked.inputs, await model.describe())
    return tensorflow_serving.answer_columns(await model.compute_all(samples), is_batch)


async def _read_request(request: Request, limit_bytes: int) -> wire.TensorFlowRequest:
    """Returns the body of a request. Its Content-Type does not matter, because the documentation of TensorFlow Serving
    uses `curl -d`, which sends that of a form.
    """
    body = await small_body(request, limit_bytes, "OCTET_MAX_PREDICT_BYTES raises the limit")
    try:
        return wire.TensorFlowRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from error


_ABOUT: dict[str, Any] = {
    "response_model": wire.TensorFlowPrediction,
    "response_model_exclude_unset": True,
    "responses": {
        413: {"description": "The request is larger than the server accepts."},
        **REFUSALS,
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/TensorFlowRequest"}}},
        }
    },
}


@router.post("/{name}:predict", summary="Predict", **_ABOUT)
async def predict_rows(name: wire.PathName, request: Request, services: ServicesOf, predictions: PredictionsOf) -> Any:
    """Takes rows (`instances`) or columns (`inputs`) of real values, of files as `{"b64": "…"}`, or of texts."""
    return await _predict(request, services, predictions, name, "")


@router.post("/{name}/versions/{version}:predict", summary="Predict by a version", **_ABOUT)
async def predict_rows_of_version(
    name: wire.PathName, version: wire.PathVersion, request: Request, services: ServicesOf, predictions: PredictionsOf
) -> Any:
    return await _predict(request, services, predictions, name, str(version))


@router.post("/{name}/labels/{label}:predict", summary="Predict by an alias", **_ABOUT)
async def predict_rows_of_alias(
    name: wire.PathName, label: _Label, request: Request, services: ServicesOf, predictions: PredictionsOf
) -> Any:
    return await _predict(request, services, predictions, name, label)


async def _describe(predictions: Predictions, request: Request, name: str, version: str) -> dict[str, Any]:
    path, headers = _path(name, version), passed_headers(request)
    described = await predictions.describe(path, headers)
    return tensorflow_serving.describe(short_name(name), version, described)


def _statuses(services: Services, name: str) -> list[dict[str, Any]]:
    found = statuses_of(services, services.models.versions(name))
    is_router = services.routing is not None
    return [
        tensorflow_serving.status(number, each.state, each.reason, is_router) for (_, number), each in found.items()
    ]


def _path(name: str, version: str) -> str:
    return f"/v2/models/{short_name(name)}" + (f"/versions/{quote(version, safe='')}" if version else "")
