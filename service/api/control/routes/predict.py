"""`/api/v1/models/{name}/predict`: predictions by task, with real values in and out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from service.api.access.tenants import short_name
from service.api.control import multipart, paths, wire
from service.api.control.body import small_body
from service.api.control.bounded import REFUSALS
from service.api.control.predictions.jobs import PARALLEL, PatientPredictor
from service.api.control.predictions.predicting import TaskPredictor
from service.api.control.predictions.samples import Sample, samples_of
from service.api.control.preferences import RESPOND_ASYNC, wants_async
from service.api.control.routes.jobs import job_document, owner_of_request
from service.api.injected import JobsOf, PredictionsOf, ServicesOf

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
        202: {"model": wire.PredictionJob, "description": "The job was started; `Location` is its URL."},
        413: {"description": "The request is larger than the server accepts."},
        415: {"description": "The body has a type that is not the input of a model."},
        **REFUSALS,
    },
)
async def predict_by_task(
    name: wire.PathName,
    request: Request,
    services: ServicesOf,
    predictions: PredictionsOf,
    jobs: JobsOf,
    version: Annotated[int | None, Query(ge=1, le=10**9, description="The version; by default the newest.")] = None,
    top: Annotated[int | None, Query(ge=1, le=10_000, description="The number of classes or boxes.")] = None,
    min_score: Annotated[float, Query(ge=0, le=1, description="Leave out boxes with a lower score.")] = 0.5,
    prefer: Annotated[
        str | None, Header(description="`respond-async`: respond at once with a job, whose result is fetched later.")
    ] = None,
) -> Any:
    """The body is a picture, or JSON with one member:

    - `image` or `sound`: a file in base64 or as a data: URL, or a list of files;
    - `values`: numbers for the only input, in real units; a quantized input stores them by its scale;
    - `inputs`: numbers for each input, by name;
    - `rows`: a list of these; the response then has `results`. CSV with a header is such a list too;
    - `text`: a text, or a list of texts; `text_pair` has the second text of each pair.

    The form of the result depends on the task of the version: `classes`, `boxes`, `spans`, `embedding`, `score`, or
    `outputs` without a task. All numbers are in real units.
    """
    (samples, is_list), size_bytes = await _samples(request, services.settings.max_predict_bytes)
    path = f"/v2/models/{short_name(name)}" + ("" if version is None else f"/versions/{version}")
    headers = passed_headers(request)
    if wants_async(prefer):
        patient = PatientPredictor(jobs.predictions, path, headers, top, min_score, True, PARALLEL)
        job = await jobs.start(owner_of_request(), name, patient, samples, is_list, size_bytes)
        applied = {"location": paths.job(job.id), "preference-applied": RESPOND_ASYNC}
        return Response(job_document(job), 202, applied, "application/json")
    model = TaskPredictor(predictions, path, headers, top, min_score, computes_spans=True)
    results = await model.predict_all(samples)
    return {"results": [each.to_json() for each in results]} if is_list else results[0].to_json()


def passed_headers(request: Request) -> dict[str, str]:
    """Returns the headers that the data plane receives: the caller's key, its trace and its deadline."""
    return {header: request.headers[header] for header in _PASSED if header in request.headers}


async def _samples(request: Request, limit_bytes: int) -> tuple[tuple[list[Sample], bool], int]:
    """Returns the samples in the body, or in the only file of a multipart form, and the size of the body."""
    body = await small_body(request, limit_bytes, "OCTET_MAX_PREDICT_BYTES raises the limit")
    content_type = request.headers.get("content-type", "")
    if multipart.is_form(content_type):
        file = multipart.file_in(body, content_type)
        body, content_type = file.content, file.media_type
    return samples_of(body, content_type), len(body)
