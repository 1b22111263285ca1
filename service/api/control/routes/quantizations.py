"""`/api/v1/models/{name}/quantizations`: quantizes a float version of a model, calibrated with sample inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse

from service.api.control import paths, submission, views, wire
from service.api.control.body import has_body, source_of
from service.api.control.bounded import BoundedRoute
from service.api.control.room import check_room
from service.api.control.routes import models
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.access.tenant import owner_of
from service.core.builds.build import Build
from service.core.builds.fixed import parse_fixed
from service.core.builds.options import parse_shapes
from service.core.builds.quantization import (
    LEAST_BLOCK,
    MOST_ROUNDS,
    MOST_SAMPLES,
    QUANTIZE,
    WEIGHT_BITS,
    LatencyBudget,
    Method,
    QuantizationOptions,
    Raised,
    Storage,
    is_quantization,
    parse_share,
)
from service.core.errors import NotFound, UnsupportedFormat
from service.core.models.metadata import ModelMetadata
from service.core.models.model import ModelVersion
from service.quantize.formats import require
from service.quantize.stored import stored

router = APIRouter(prefix=f"{paths.PREFIX}/models/{{name}}/quantizations", tags=["models"], route_class=BoundedRoute)

_BINARY = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "properties": {"file": _BINARY}, "required": ["file"]}
_BODY = {"content": {"application/octet-stream": {"schema": _BINARY}, "multipart/form-data": {"schema": _FORM}}}


@router.post(
    "",
    summary="Quantize a float model",
    operation_id="quantize_model",
    status_code=202,
    response_model=wire.Build,
    openapi_extra={"requestBody": _BODY},
    responses={
        200: {"description": "The same quantization was done before; returns its build.", "model": wire.Build},
        202: {"description": "The quantization has been queued or is running; `Location` is the URL of its build."},
        413: {"description": "The calibration set is larger than the server accepts."},
        415: {"description": "The body is neither a zip archive nor a NumPy array."},
        422: {
            "description": "The version's format cannot be quantized, an option is unknown, or there is no compiler."
        },
    },
)
async def quantize(
    name: wire.PathName,
    request: Request,
    response: Response,
    services: ServicesOf,
    version: Annotated[
        int | None, Query(ge=1, le=10**9, description="The float version; by default the newest.")
    ] = None,
    method: Annotated[
        Method, Query(description="How the ranges of activations are chosen from the inputs.")
    ] = Method.MINMAX,
    activations: Annotated[
        Storage, Query(description="The integer type in which activations are stored.")
    ] = Storage.UINT8,
    keep: Annotated[
        list[str] | None,
        Query(max_length=10_000, description="An output tensor of an operator to keep in float. Repeatable."),
    ] = None,
    wide: Annotated[
        list[str] | None,
        Query(
            max_length=10_000,
            description="An output tensor of an operator to give 16-bit activations and 8-bit weights. Repeatable.",
        ),
    ] = None,
    bfloat16: Annotated[
        list[str] | None,
        Query(
            max_length=10_000,
            description="An output tensor of a Conv, Gemm or MatMul to compute in bfloat16. Repeatable.",
        ),
    ] = None,
    equalize: Annotated[
        bool, Query(description="First rescale the channels of neighbouring layers so that their ranges match.")
    ] = False,
    correct_bias: Annotated[
        bool,
        Query(description="Adjust biases to compensate the shift of channel means that rounding the weights causes."),
    ] = True,
    adaround: Annotated[
        bool,
        Query(
            description="Round each weight up or down so that the outputs of layers change least, instead of to the "
            "nearest."
        ),
    ] = False,
    rounds: Annotated[
        int,
        Query(
            ge=0,
            le=MOST_ROUNDS,
            description="How often to choose the ranges again, from the activations of the quantized model.",
        ),
    ] = 0,
    sensitivity: Annotated[
        bool,
        Query(
            description="Also measure the loss that quantizing each layer causes, and the loss that remains if the "
            "worst layers are in float."
        ),
    ] = False,
    budget: Annotated[
        str | None,
        Query(
            max_length=20,
            description="The largest share of answers that may be lost, such as `0.5%`: the layers that lose most stay "
            "in float until it is met.",
        ),
    ] = None,
    raise_to: Annotated[
        Raised,
        Query(description="The type that the budget prefers to float; `bfloat16` is fast on targets with `+bf16`."),
    ] = Raised.WIDE,
    latency_budget: Annotated[
        str | None,
        Query(
            max_length=30,
            description="The longest time that a call may take on this server: `5ms`, or `1.2x` the time with all "
            "layers in integers. Within this limit, as many as possible of the layers that lose most stay in float. It "
            "takes precedence over `budget`.",
        ),
    ] = None,
    samples: Annotated[int, Query(ge=1, le=MOST_SAMPLES, description="Use at most this many inputs.")] = 256,
    target: Annotated[str, Query(description="The target of the quantized version's build.")] = "host",
    input_shape: Annotated[
        str, Query(max_length=1000, description="The shapes of inputs that the file leaves open: `1,3,224,224`.")
    ] = "",
    fix: wire.QueryFix = "",
    data: Annotated[
        str | None,
        Query(
            pattern=wire.DIGEST_PATTERN, description="The digest of a stored calibration set to use instead of a body."
        ),
    ] = None,
    dynamic: Annotated[
        bool,
        Query(
            description="Without inputs: quantize only matrix products, and compute the ranges of their inputs at run "
            "time."
        ),
    ] = False,
    weights: Annotated[
        int | None,
        Query(
            ge=min(WEIGHT_BITS),
            le=max(WEIGHT_BITS),
            description="Without inputs: quantize only the weights of matrix products, to 4 or 8 bits.",
        ),
    ] = None,
    block: Annotated[
        int,
        Query(
            ge=LEAST_BLOCK, le=1 << 30, description="With `weights`: how many weights share a scale; a power of two."
        ),
    ] = 32,
) -> wire.Build:
    """The body is the calibration set: a zip archive of pictures, or an `.npz` with an array `[count, …]` for each
    input of the model; either may contain `labels.csv`. The version's metadata defines how pictures become tensors.
    With `dynamic` or `weights`, which need no inputs, the body is empty.

    A build quantizes the model. When the build succeeds, the quantized model becomes a new version, and the build of
    this version starts.
    """
    await run_in_threadpool(submission.require_compiler)
    share = None if budget is None else parse_share(budget)
    shapes, fixed, resolved = parse_shapes(input_shape), parse_fixed(fix), submission.resolve_target(services, target)
    found = await run_in_threadpool(_float_version, services, name, version)
    options = QuantizationOptions(
        method=method,
        activations=activations,
        keep=tuple(keep or ()),
        wide=tuple(wide or ()),
        bfloat16=tuple(bfloat16 or ()),
        equalize=equalize,
        correct_bias=correct_bias,
        adaround=adaround,
        rounds=rounds,
        sensitivity=sensitivity,
        budget=share,
        raise_to=raise_to,
        latency_budget=None if latency_budget is None else LatencyBudget.parse(latency_budget),
        samples=samples,
        dynamic=dynamic,
        weights=weights,
        block=block,
    )
    has_inputs = options.takes_inputs or data is not None or has_body(request)
    options.check(has_inputs)
    declared = request.headers.get("content-length", "0")
    size_bytes = int(declared) if has_inputs and data is None and declared.isdecimal() else 0
    await run_in_threadpool(check_room, services, owner_of(name), None, size_bytes, found.size_bytes)
    digest = await source_of(request, services, data, _check_head) if has_inputs else None

    def record() -> wire.Build:
        if digest is not None:
            size_bytes = services.layout.blobs.renew(
                digest
            )  # protects the calibration set from garbage collection until the build uses it
            check_room(services, owner_of(name), digest, size_bytes, found.size_bytes)
        metadata = found.metadata.over(_file_preprocessing(services, found)).of_pictures
        full_options = replace(options, metadata=metadata, data=digest)
        build = submission.request_quantization(services, found, resolved, full_options, shapes, fixed)
        services.audit.note("quantize", model=name, version=found.number, data=digest, build=build.id)
        return views.answer_with_build(response, build, services.builds)

    return await run_in_threadpool(record)


@router.get("", summary="List the quantizations of a model", response_model=wire.Builds)
def list_quantizations(name: wire.PathName, services: ServicesOf) -> wire.Builds:
    """Returns the builds that quantize versions of the model, most recently requested first."""
    services.models.get(name)
    return wire.Builds(builds=views.builds(services.builds.quantizations(name), services.builds))


@router.get("/{id}", summary="Get a quantization", response_model=wire.QuantizedModel)
def get_quantization(name: wire.PathName, id: wire.PathBuild, services: ServicesOf) -> wire.QuantizedModel:
    """Returns the build and, once it has succeeded, the quantization's loss of accuracy and the version that the
    quantization created.
    """
    build = _quantization(services, name, id)
    shown = views.build(build, services.builds)
    if build.artifact is None:
        return wire.QuantizedModel(build=shown)
    result = stored(services.layout, build.artifact)
    made = (each for each in services.models.versions(name) if each.source == result.file.digest)
    return wire.QuantizedModel(
        build=shown,
        version=next((each.number for each in made), None),
        source=result.file.digest,
        file=f"{paths.quantization(name, build.id)}/file",
        report=dict(result.report),
    )


@router.get(
    "/{id}/file",
    summary="Download a quantized model",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {"schema": _BINARY}}}},
)
def get_file(name: wire.PathName, id: wire.PathBuild, services: ServicesOf) -> FileResponse:
    """Returns the ONNX file, with QuantizeLinear and DequantizeLinear."""
    build = _quantization(services, name, id)
    if build.artifact is None:
        raise NotFound(f"quantization {build.id} has produced no file", hint="check the state of its build")
    path = services.layout.blobs.path(stored(services.layout, build.artifact).file.digest)
    filename = f"{name}{QuantizationOptions.from_json(build.options[QUANTIZE]).suffix}"
    return FileResponse(path, media_type="application/octet-stream", filename=filename)


def _quantization(services: Services, name: str, id: str) -> Build:
    build = services.builds.get(id)
    if not is_quantization(build.options) or all(name != each for each, _, _ in services.builds.requests(build.id)):
        raise NotFound(f"there is no quantization {id} of {name!r}")
    return build


def _float_version(services: Services, name: str, number: int | None) -> ModelVersion:
    """Returns a version of a model. Raises `Unsupported` if its format cannot be quantized."""
    found = services.version(name, number)
    require(found.format)
    return found


def _file_preprocessing(services: Services, version: ModelVersion) -> ModelMetadata:
    """Returns the preprocessing of pictures that the model file itself defines."""
    facts: dict[str, Any] = models.facts_of(services, version.name, version.number).get(version.number) or {}
    return ModelMetadata.from_file(facts)


def _check_head(head: bytes) -> None:
    if not head.startswith((b"PK", b"\x93NUMPY")):
        raise UnsupportedFormat(
            "the body is neither a zip archive nor a NumPy array",
            hint="send a zip archive of pictures, or a file of numpy.savez",
        )
