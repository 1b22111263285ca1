"""`/api/v1/models`: lists models, and uploads and compiles a model in one request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api.access.tenants import tenant
from service.api.control import paths, submission, views, wire
from service.api.control.body import source_of
from service.api.control.bounded import BoundedRoute, LabelsRoute
from service.api.control.folder_uploads import Unpacked, is_folder, unpack
from service.api.control.labels import check_labels
from service.api.control.room import check_room, check_source
from service.api.injected import ServicesOf
from service.api.services import Services
from service.compiler.importers.detect import detect_format, format_of
from service.core.artifacts.artifact import Report
from service.core.builds.fixed import check_fixed, parse_fixed
from service.core.builds.numerics import parse_mode
from service.core.builds.options import (
    check_batches,
    check_tune,
    parse_batches,
    parse_open_shapes,
    parse_tune,
    with_sizes,
)
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound
from service.core.models.metadata import NOTHING, Layout, ModelMetadata, Resize, parse_numbers
from service.core.models.model import ModelVersion
from service.core.models.sound import MAX_RATE, MIN_RATE
from service.core.models.task import Task
from service.core.models.text import MAX_TOKENS, TextProcessing, parse_pooling
from service.core.target import Target
from service.workers.inference.states import VersionStatus, version_statuses

router = APIRouter(prefix=f"{paths.PREFIX}/models", tags=["models"], route_class=BoundedRoute)

_MOST_NAMES = 4000  # characters of labels or columns in a query: most servers and proxies refuse URLs of 8 KB
_BINARY = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "properties": {"file": _BINARY}, "required": ["file"]}
_FILE_BODY = {"content": {"application/octet-stream": {"schema": _BINARY}, "multipart/form-data": {"schema": _FORM}}}
_PUSH: dict[str, Any] = {
    "summary": "Upload a model and compile it",
    "status_code": 202,
    "response_model": wire.Build,
    "openapi_extra": {"requestBody": _FILE_BODY},
    "responses": {
        200: {"description": "The model was built before; returns that build.", "model": wire.Build},
        202: {"description": "The build has been queued or is running; `Location` is its URL."},
        413: {"description": "The file is larger than the server accepts."},
        415: {"description": "Octet does not read the file's format."},
        422: {
            "description": "The target or numerics mode is unknown (the hint lists the known ones), or this server "
            "has no compiler."
        },
    },
}


@router.put("", operation_id="push_model", **_PUSH)
@router.post("", operation_id="push_model_by_post", **_PUSH)
async def push(
    request: Request,
    response: Response,
    services: ServicesOf,
    name: wire.QueryName,
    target: Annotated[
        str,
        Query(
            description='The target. "host": the best one that runs on the server, or on a worker of its cluster. '
            '"all": every target that a worker serves; the response is the build for the best.',
        ),
    ] = "host",
    numerics: wire.QueryNumerics = None,
    batch: Annotated[
        str,
        Query(
            description="The batch sizes, such as `1,8,16`. Size 1 is built and served first; the response is its "
            "build."
        ),
    ] = "1",
    tune: Annotated[
        str | None,
        Query(
            description="After the build, search this long for faster tile sizes, such as `60s`, in a background build."
        ),
    ] = None,
    input_shape: Annotated[
        str,
        Query(
            max_length=1000,
            description="The shapes of inputs that the file leaves open (TorchScript): `1,3,224,224`, or by name, "
            "`x=1,3,224,224;y=1,10`. With a list of sizes, `x=1x[16,32,64]`, the model is built for each size. "
            "`x=1x..128` stands for all sizes up to 128, for which there is one build.",
        ),
    ] = "",
    fix: wire.QueryFix = "",
    accept_differences: wire.QueryAccept = False,
    mean: Annotated[
        str,
        Query(
            max_length=200, description="The mean to subtract from pixel / 255 of each channel: `0.485,0.456,0.406`."
        ),
    ] = "",
    std: Annotated[
        str, Query(max_length=200, description="The standard deviation to then divide by: `0.229,0.224,0.225`.")
    ] = "",
    resize: Annotated[Resize | None, Query(description="How a picture is fitted to the model's input size.")] = None,
    layout: Annotated[
        Layout | None, Query(description="The layout of the picture input, if its shape does not show it.")
    ] = None,
    variant: Annotated[
        str,
        Query(max_length=200, description="For a folder: the variant, such as `quantized`; the best one by default."),
    ] = "",
    task: Annotated[Task | None, Query(description="The task of the model.")] = None,
    labels: Annotated[
        str,
        Query(
            max_length=_MOST_NAMES,
            description="The labels of the classes, separated by commas. More labels, and labels with commas, are set "
            "by `PATCH` of the version.",
        ),
    ] = "",
    columns: Annotated[
        str,
        Query(
            max_length=_MOST_NAMES,
            description="The names of the features of a model of rows, in order, separated by commas.",
        ),
    ] = "",
    sampling_rate: Annotated[
        int | None,
        Query(ge=MIN_RATE, le=MAX_RATE, description="The number of samples of a waveform in a second."),
    ] = None,
    standardize: Annotated[
        bool | None, Query(description="Whether a waveform is shifted and scaled to mean 0 and variance 1.")
    ] = None,
    pooling: Annotated[
        str, Query(max_length=100, description="How the vectors of the tokens become one vector, such as `mean`.")
    ] = "",
    normalize: Annotated[bool | None, Query(description="Whether each embedding is normalized.")] = None,
    max_length: Annotated[int | None, Query(ge=1, le=MAX_TOKENS, description="The maximum number of tokens.")] = None,
    source: Annotated[
        str | None,
        Query(pattern=wire.DIGEST_PATTERN, description="The digest of a stored blob to use instead of a body."),
    ] = None,
) -> wire.Build:
    """The body is the file itself (`curl -T FILE`), or a form with one file (`curl -F file=@FILE`).

    It may also be the folder of a published model: a zip archive (`curl -T model.zip`), or a form with its files as
    fields `files` (`curl -F files=@config.json -F 'files=@onnx/model.onnx;filename=onnx/model.onnx'`). The best variant
    for the target is then built, with the tokenizer, the labels and the preprocessing that the folder defines.

    A different file under the same name becomes a new version. Pushing the same file again returns the existing
    version.
    """
    await run_in_threadpool(submission.require_compiler)  # in a thread, because the first call reads files
    batches, tune_s = parse_batches(batch), None if tune is None else parse_tune(tune)
    shapes, fixed = parse_open_shapes(input_shape), parse_fixed(fix)
    with_sizes(batches, shapes)  # raises an error before any part is stored
    ways = parse_pooling(pooling) if pooling else ()
    text = TextProcessing(max_length=max_length, pooling=ways, normalize=normalize)
    numbers = parse_numbers(mean), parse_numbers(std)
    metadata = ModelMetadata(
        labels=_names(labels),
        mean=numbers[0],
        std=numbers[1],
        resize=resize,
        layout=layout,
        task=task,
        text=text,
        columns=_names(columns),
        sampling_rate=sampling_rate,
        standardize=standardize,
    )
    resolved = submission.resolve_targets(services, target)
    if numerics is not None:
        parse_mode(numerics)
    declared = request.headers.get("content-length", "0")
    await run_in_threadpool(
        check_room, services, tenant.get(), None, 0 if source or not declared.isdecimal() else int(declared)
    )
    digest = await source_of(request, services, source, detect_format)

    def record() -> wire.Build:
        found = _source(services, digest, variant, resolved[0], pooling, max_length)
        version = submission.add_version(services, name, found.source, found.format, found.size_bytes)
        if described := metadata.over(found.metadata):
            submission.describe(services, name, version.number, described)
        opened = shapes or parse_open_shapes(found.found.input_shape if found.found else "")
        arguments = numerics, batches, tune_s, opened, accept_differences, fixed
        build = submission.request_builds(services, version, resolved, *arguments)[0]
        services.audit.note("push", model=name, version=version.number, source=found.source, build=build.id)
        answer = views.answer_with_build(response, build, services.builds)
        if found.found is None:
            return answer
        return answer.model_copy(update={"published": wire.PublishedFolder(**found.found.to_json())})

    return await run_in_threadpool(record)


def _names(text: str) -> tuple[str, ...]:
    """Returns the names in a list that is separated by commas."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


@router.get("", summary="List the models", response_model=wire.Models)
def list_models(
    request: Request,
    response: Response,
    services: ServicesOf,
    limit: wire.QueryLimit = 50,
    cursor: wire.QueryCursor = None,
) -> wire.Models:
    """The models are sorted by name; each is shown with its newest version."""
    models, following = list_page(services, limit, cursor)
    paths.link_next(request, response, following)
    return models


def list_page(services: Services, limit: int, cursor: str | None) -> tuple[wire.Models, str | None]:
    """Returns a page of the models that the request may see, and the cursor of the next page; None on the last page."""
    models, following = services.models.list(limit, cursor, tenant.get())
    aliases, standing = services.aliases.list(), statuses_of(services, models)
    shown = [
        views.model(each, standing[each.name, each.number], (alias for alias in aliases if alias.model == each.name))
        for each in models
    ]
    files = {} if tenant.get() else services.broken_files
    broken = [wire.BrokenFile(file=file, reason=why) for file, why in sorted(files.items())]
    return wire.Models(models=shown, broken_files=broken), following


@router.get("/{name}", summary="Get a model and its versions", response_model=wire.ModelVersions)
@router.get(
    "/{name}/versions",
    summary="List the versions of a model",
    operation_id="get_versions",
    response_model=wire.ModelVersions,
)
def get_model(name: wire.PathName, services: ServicesOf) -> wire.ModelVersions:
    versions, facts = services.models.versions(name), facts_of(services, name, None)
    standing = statuses_of(services, versions)
    shown = [views.version(each, standing[name, each.number], facts.get(each.number)) for each in versions]
    aliases = [views.alias(alias) for alias in services.aliases.list(name)]
    return wire.ModelVersions(name=name, versions=shown, aliases=aliases)


@router.get("/{name}/versions/{version}", summary="Get a version of a model", response_model=wire.ModelVersion)
def get_version(name: wire.PathName, version: wire.PathVersion, services: ServicesOf) -> wire.ModelVersion:
    found = services.models.version(name, version)
    return views.version(
        found, statuses_of(services, [found])[name, version], facts_of(services, name, version).get(version)
    )


def describe_version(
    name: wire.PathName, version: wire.PathVersion, metadata: wire.Metadata, services: ServicesOf
) -> wire.ModelVersion:
    """Sets the labels, the task and the preprocessing. Members that the body leaves out keep their values.

    Labels are refused if a build has shown that the model has another number of classes.
    """
    described = ModelMetadata.from_json(metadata.model_dump(exclude_none=True))
    if described.text.tokenizer is not None:
        check_source(services, described.text.tokenizer)
    if described.labels:
        stored = services.models.version(name, version).metadata
        check_labels(described.over(stored), facts_of(services, name, version).get(version))
    submission.describe(services, name, version, described)
    return get_version(name, version, services)


router.add_api_route(
    "/{name}/versions/{version}",
    describe_version,
    methods=["PATCH"],
    summary="Describe a version of a model",
    response_model=wire.ModelVersion,
    route_class_override=LabelsRoute,
)


@router.post(
    "/{name}/builds",
    summary="Compile a model for more targets",
    status_code=202,
    response_model=wire.Builds,
    responses={
        200: {"description": "All were built before; returns these builds.", "model": wire.Builds},
        422: {"description": "The target or numerics mode is unknown; the hint lists the known ones."},
    },
)
def request_builds(
    name: wire.PathName, request: wire.BuildRequest, response: Response, services: ServicesOf
) -> wire.Builds:
    """Identical requests share a build: if a build with the same inputs is queued, is running or has succeeded, no new
    build is started.
    """
    named = (submission.resolve_targets(services, target) for target in request.targets)
    targets = list(dict.fromkeys(chain.from_iterable(named)))
    version = services.version(name, request.version)
    batches = check_batches(request.options.batch)
    tune_s = None if request.options.tune_s is None else check_tune(request.options.tune_s)
    shapes, numerics = request.options.input_shapes, request.options.numerics
    accepts, fixed = request.options.accept_differences, check_fixed(request.options.fixed_inputs)
    builds = submission.request_builds(services, version, targets, numerics, batches, tune_s, shapes, accepts, fixed)
    services.audit.note("build", model=name, version=version.number, builds=[build.id for build in builds])
    return views.answer_with_builds(response, name, builds, services.builds)


def statuses_of(services: Services, versions: Sequence[ModelVersion]) -> dict[tuple[str, int], VersionStatus]:
    """Returns the states of versions on this server, by model and number."""
    wanted = services.builds.requested_by({each.name for each in versions})
    pairs = [(each.name, each.number) for each in versions]
    return version_statuses(pairs, wanted, services.registry, services.crashes.quarantined())


def facts_of(services: Services, name: str, number: int | None) -> dict[int, Any]:
    """Returns the facts that builds found about a model, or about one version of it, by version number."""
    found: dict[int, Any] = {}
    for build in services.builds.requested_by({name}):
        is_asked = number in (None, build.version) and build.version not in found
        if is_asked and build.artifact is not None and not build.invalidated:
            report = services.layout.attached(build.artifact, Report.FACTS)
            if report is not None:
                found[build.version] = json.loads(report)
    return found


def _source(
    services: Services, source: Digest, variant: str, target: Target, pooling: str, max_length: int | None
) -> Unpacked:
    """Returns the model in a stored file, which may be the archive of a published model.

    Raises:
        NotFound: the file does not exist or is damaged. The client can repair a damaged file by sending it again.
        InvalidInput: the file is not a folder, but the request names a variant.
        OctetError: the file is not a model, or the folder cannot be read.
    """
    blobs = services.layout.blobs
    try:
        size_bytes = blobs.renew(source)  # protects the file from garbage collection until a version uses it
        if is_folder(services, source):
            return unpack(services, blobs.path(source), variant, target, pooling, max_length)
        if variant:
            raise InvalidInput("the file is not the folder of a published model", hint="leave out variant")
        with blobs.path(source).open("rb") as file:
            return Unpacked(source, size_bytes, format_of(file), NOTHING, None)
    except CorruptBlob as error:
        raise NotFound(error.message, hint="send the file itself") from error
