"""From a question, "this model version for these targets", to the builds that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError
from types import MappingProxyType
from typing import Any

from service.api.control.room import check_room
from service.api.services import Services
from service.cache import OciLayout
from service.compiler.build.artifact_archive import received
from service.compiler.lowering import toolchain
from service.core.artifact import ARCHIVE_FORMAT, Report
from service.core.build import Build, BuildInputs, BuildState
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound, Unsupported
from service.core.metadata import ModelMetadata
from service.core.model import ModelVersion
from service.core.numerics import DEFAULT_MODE, parse_mode
from service.core.options import OpenShapes, Shapes, with_acceptance, with_shapes, with_sizes, with_tuning
from service.core.quantization import QUANTIZE, QuantizationOptions
from service.core.target import ALL, Target, parse_target
from service.core.tenant import owner_of
from service.quantize import stored
from service.quantize.formats import RESULT_NUMERICS
from service.workers.catalog import record_build, record_metadata, record_version
from service.workers.quantized import add_quantized

QUANTIZATION_BUILDS = 2  # of a tenant's quota: the quantization, and the build of the version that it makes


def add_version(services: Services, name: str, source: Digest, format: str, size_bytes: int) -> ModelVersion:
    """The version of `name` that is the stored file `source`. The index has it before the answer is sent."""
    check_room(services, owner_of(name), source, size_bytes)
    version = services.models.push(name, source, format, size_bytes)
    record_version(services.layout, services.models, version)
    return version


def describe(services: Services, name: str, number: int, metadata: ModelMetadata) -> ModelVersion:
    """Updates the version's metadata in the tables and in the index. Raises `NotFound`."""
    version = services.models.describe(name, number, metadata)
    record_metadata(services.layout, services.models, version)
    services.audit.note("describe", model=name, version=number, members=sorted(metadata.to_json()))
    return version


def resolve_target(services: Services, name: str) -> Target:
    """The target called `name`; "host" ends here, and no build ever has it for a name. Raises `UnknownTarget`.

    Of a cluster, "host" is the best target of its workers' CPUs. A plus sign of a query arrives as a space, if its
    sender did not escape it; no target has a space in its name.
    """
    if name != "host":
        return parse_target(name.replace(" ", "+"))
    return services.host.target if services.routing is None else services.routing.best_target()


def resolve_targets(services: Services, name: str) -> list[Target]:
    """As `resolve_target`; "all" are those that workers of the cluster serve, and of a server by itself its best."""
    if name != ALL:
        return [resolve_target(services, name)]
    return [services.host.target] if services.routing is None else services.routing.targets()


def request_builds(
    services: Services,
    version: ModelVersion,
    targets: Sequence[Target],
    numerics: str | None,
    batches: Sequence[int] = (1,),
    tune_s: float | None = None,
    shapes: OpenShapes = MappingProxyType({}),
    accepts: bool = False,
) -> list[Build]:
    """The builds of a version: new ones, those under way, or those that succeeded before.

    One for each target and batch size, or bucket of `shapes`; those of one sample, or of the smallest bucket, first:
    they are served while the others are built. Last come those that are tuned for `tune_s` each.

    Args:
        accepts: True to serve what differs from its reference runtime; the settings may accept that for all builds.

    Raises:
        InvalidInput: lists of sizes do not go together, or are to be built for batches too.
        Unsupported: there is no such numerics mode, or this server has no compiler.
        NotFound: the version was deleted meanwhile.
    """
    accepts = accepts or services.settings.accept_differences
    if version.format == ARCHIVE_FORMAT:
        return [_request_artifact(services, version, targets, numerics, batches, tune_s, shapes, accepts)]
    mode = DEFAULT_MODE[version.format] if numerics is None else parse_mode(numerics)
    wanted = with_sizes(batches, shapes)
    if tune_s is not None:
        wanted += [with_tuning(options, tune_s) for options in wanted]
    wanted = [with_acceptance(options, accepts) for options in wanted]
    questions = [_inputs(version.source, target, mode, options) for options in wanted for target in targets]
    builds = [_submit(services, inputs, version.name, version.number) for inputs in questions]
    _check_still_there(services, version)
    return builds


def request_quantization(
    services: Services, version: ModelVersion, target: Target, asked: QuantizationOptions, shapes: Shapes
) -> Build:
    """The build that quantizes a version: a new one, one under way, or one that succeeded before, whose result is then
    a version of this model too.

    Args:
        target: of the quantized version's build. Its numerics are those of the quantized file's format.

    Raises as `request_builds`.
    """
    require_compiler()
    options = {**with_shapes(shapes), QUANTIZE: asked.to_json()}
    inputs = stored.build_inputs(version.source, target, RESULT_NUMERICS, options)
    tenant = owner_of(version.name)
    services.access.check_builds(tenant, QUANTIZATION_BUILDS)
    build, created = services.builds.submit(inputs, version.name, version.number)
    if build.state is BuildState.SUCCEEDED and build.artifact and not stored.is_intact(services.layout, build.artifact):
        services.builds.invalidate(build.artifact)
        build, created = services.builds.submit(inputs, version.name, version.number)
    if created:
        services.access.count_builds(tenant, QUANTIZATION_BUILDS)
    _check_still_there(services, version)
    if build.state is BuildState.SUCCEEDED and build.artifact:
        add_quantized(services.layout, services.builds, services.models, build, build.artifact, version)
    return build


def _request_artifact(
    services: Services,
    version: ModelVersion,
    targets: Sequence[Target],
    numerics: str | None,
    batches: Sequence[int],
    tune_s: float | None,
    shapes: OpenShapes,
    accepts: bool,
) -> Build:
    """The build that verifies a version that was pushed as an artifact: it is what it is.

    Raises:
        Unsupported: another target or numerics mode is requested.
    """
    found = received(services.layout.blobs.path(version.source))
    is_same = set(targets) <= {found.target} and numerics in (None, found.numerics)
    if not is_same or tuple(batches) != (1,) or tune_s is not None or shapes:
        raise Unsupported(
            f"version {version.number} of {version.name!r} is an artifact for {found.target}, and is not compiled",
            hint="push the model file to compile it for another target",
        )
    options = with_acceptance(found.options, accepts)
    inputs = _inputs(version.source, found.target, found.numerics, options)
    build = _submit(services, inputs, version.name, version.number)
    _check_still_there(services, version)
    return build


def request_again(services: Services, build: Build) -> Build:
    """The build that takes the place of one whose artifact is lost."""
    inputs = _inputs(build.source, parse_target(build.target), build.numerics, build.options)
    return _submit(services, inputs, build.model, build.version)


def require_compiler() -> None:
    """To be called before anything is kept of a push.

    Raises:
        Unsupported: the compiler is not installed here, so the build that a model needs is unknown.
    """
    try:
        toolchain.fingerprint()
    except PackageNotFoundError as error:
        raise Unsupported(
            f"this server answers predictions only: {error.name} of the compiler is not installed",
            hint="use a server that compiles",
        ) from error


def _inputs(source: Digest, target: Target, mode: str, options: Mapping[str, Any]) -> BuildInputs:
    require_compiler()
    return toolchain.build_inputs(source, target, mode, options)


def _check_still_there(services: Services, version: ModelVersion) -> None:
    """Deleting a version withdraws its earlier requests for builds, not later ones."""
    try:
        services.models.version(version.name, version.number)
    except NotFound:
        services.builds.withdraw(version.name, version.number)
        raise


def _submit(services: Services, inputs: BuildInputs, model: str, version: int) -> Build:
    tenant = owner_of(model)
    services.access.check_builds(tenant)
    build, created = services.builds.submit(inputs, model, version)
    artifact = build.artifact
    if build.state.has_artifact and artifact and not is_intact(services.layout, artifact):
        services.builds.invalidate(artifact)
        build, created = services.builds.submit(inputs, model, version)
    if created:
        services.access.count_builds(tenant)
        services.metrics.cache_misses.labels("artifact").inc()
    elif build.state.has_artifact:
        services.metrics.cache_hits.labels("artifact").inc()
        record_build(services.layout, services.builds, build)
    return build


def is_intact(layout: OciLayout, artifact: Digest) -> bool:
    """Whether an artifact can still be served: everything it consists of is there, in full size.

    The bytes are hashed when they are loaded; here that would make a cache hit as slow as the disk.
    """
    try:
        manifest = layout.manifest(artifact)
        sizes = [layout.blobs.size_bytes(part.digest) for part in (manifest.config, *manifest.layers)]
        is_verified = layout.attached(artifact, Report.NUMERICS) is not None
    except (NotFound, CorruptBlob, InvalidInput):
        return False
    return is_verified and sizes == [part.size_bytes for part in (manifest.config, *manifest.layers)]
