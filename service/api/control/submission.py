"""Turns a request such as "this model version for these targets" into builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from types import MappingProxyType
from typing import Any

from service.api.control.room import check_room
from service.api.services import Services
from service.cache import OciLayout
from service.compiler.build.artifact_archive import received
from service.compiler.lowering import toolchain
from service.core.access.tenant import owner_of
from service.core.artifacts.artifact import ARCHIVE_FORMAT, Report
from service.core.builds.build import Build, BuildInputs, BuildState
from service.core.builds.fixed import Fixed, with_fixed
from service.core.builds.numerics import DEFAULT_MODE, parse_mode
from service.core.builds.options import (
    OpenShapes,
    Shapes,
    batch_of,
    bucket_index_of,
    with_acceptance,
    with_shapes,
    with_sizes,
    with_tuning,
)
from service.core.builds.quantization import QUANTIZE, QuantizationOptions
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound, Unsupported
from service.core.models.metadata import ModelMetadata
from service.core.models.model import ModelVersion
from service.core.target import ALL, Target, parse_target
from service.quantize import stored
from service.quantize.formats import RESULT_NUMERICS
from service.workers.catalog import record_build, record_metadata, record_version
from service.workers.quantized import add_quantized

# the number of builds that count for the quota: the quantization, and the build of the quantized version
QUANTIZATION_BUILDS = 2


def add_version(services: Services, name: str, source: Digest, format: str, size_bytes: int) -> ModelVersion:
    """Adds the stored file `source` as a version of `name`, also to the index."""
    check_room(services, owner_of(name), source, size_bytes)
    version = services.models.push(name, source, format, size_bytes)
    record_version(services.layout, services.models, version)
    return version


def describe(services: Services, name: str, number: int, metadata: ModelMetadata) -> ModelVersion:
    """Updates a version's metadata in the database and in the index.

    Raises:
        NotFound: the version or the file of the tokenizer does not exist.
        TenantFull: the tokenizer would exceed the tenant's quota.
    """
    if metadata.text.tokenizer is not None:
        metadata = _with_tokenizer_size(services, name, metadata, metadata.text.tokenizer)
    version = services.models.describe(name, number, metadata)
    record_metadata(services.layout, services.models, version)
    services.audit.note("describe", model=name, version=number, members=sorted(metadata.to_json()))
    return version


def _with_tokenizer_size(services: Services, name: str, metadata: ModelMetadata, tokenizer: Digest) -> ModelMetadata:
    size_bytes = services.layout.blobs.renew(tokenizer)  # protects the file from garbage collection until it is used
    check_room(services, owner_of(name), tokenizer, size_bytes)
    return replace(metadata, text=replace(metadata.text, tokenizer_bytes=size_bytes))


def resolve_target(services: Services, name: str) -> Target:
    """Returns the target called `name`. The name "host" is resolved here, so that it never gets into a build. Raises
    `UnknownTarget`.

    In a cluster, "host" means the best target of its workers' CPUs. Spaces are replaced by plus signs: a plus sign that
    is not escaped in a query arrives as a space, and no target has a space in its name.
    """
    if name != "host":
        return parse_target(name.replace(" ", "+"))
    return services.host.target if services.routing is None else services.routing.best_target()


def resolve_targets(services: Services, name: str) -> list[Target]:
    """Like `resolve_target`, but accepts "all": each target that a worker of the cluster serves, or the best target of
    a single server.
    """
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
    fixed: Fixed = MappingProxyType({}),
) -> list[Build]:
    """Returns the builds of a version. These builds may be new, running, or have succeeded before.

    There is one build for each target and batch size, or for each target and bucket of `shapes`. The builds with batch
    size 1, or of the smallest bucket, come first, so that they are served while the others are built. If `tune_s` is
    given, there is a second, tuned build for each of these builds. Tuned builds come last, and search for `tune_s`
    seconds each.

    Args:
        accepts: true to serve outputs that differ from the reference runtime's. The settings may also accept them for
            all builds.
        fixed: inputs that become constants.

    Raises:
        InvalidInput: lists of sizes do not match, or are combined with batch sizes.
        Unsupported: the numerics mode does not exist, or this server has no compiler.
        NotFound: the version has been deleted.
    """
    accepts = accepts or services.settings.accept_differences
    if version.format == ARCHIVE_FORMAT:
        return [
            _request_artifact(services, version, targets, numerics, batches, tune_s, bool(shapes or fixed), accepts)
        ]
    mode = DEFAULT_MODE[version.format] if numerics is None else parse_mode(numerics)
    wanted = [(target, options) for target in targets for options in with_sizes(batches, shapes, binds=target.binds)]
    # The builds of the smallest size come first, for all targets.
    wanted.sort(key=lambda each: (batch_of(each[1]), bucket_index_of(each[1])))
    if tune_s is not None:
        wanted += [(target, with_tuning(options, tune_s)) for target, options in wanted]
    questions = [
        _inputs(version.source, target, mode, with_acceptance(with_fixed(options, fixed), accepts))
        for target, options in wanted
    ]
    builds = [_submit(services, inputs, version.name, version.number) for inputs in questions]
    _check_still_there(services, version)
    return builds


def request_quantization(
    services: Services,
    version: ModelVersion,
    target: Target,
    quantization: QuantizationOptions,
    shapes: Shapes,
    fixed: Fixed,
) -> Build:
    """Returns the build that quantizes a version. The build may be new, running, or have succeeded before. In the last
    case, the existing result is also added as a version of this model.

    Args:
        target: the target of the quantized version's build. The numerics mode of that build is the default of the
            quantized file's format.

    Raises the errors of `request_builds`.
    """
    require_compiler()
    options = {**with_fixed(with_shapes(shapes), fixed), QUANTIZE: quantization.to_json()}
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
    has_inputs: bool,
    accepts: bool,
) -> Build:
    """Returns the build that verifies a version that was pushed as a compiled artifact.

    Raises:
        Unsupported: the request names another target or numerics mode.
    """
    found = received(services.layout.blobs.path(version.source))
    is_same = set(targets) <= {found.target} and numerics in (None, found.numerics)
    if not is_same or tuple(batches) != (1,) or tune_s is not None or has_inputs:
        raise Unsupported(
            f"version {version.number} of {version.name!r} is an artifact for {found.target}, which cannot be compiled",
            hint="push the model file to compile it for another target",
        )
    options = with_acceptance(found.options, accepts)
    inputs = _inputs(version.source, found.target, found.numerics, options)
    build = _submit(services, inputs, version.name, version.number)
    _check_still_there(services, version)
    return build


def request_again(services: Services, build: Build) -> Build:
    """Requests a new build to replace one whose artifact is lost."""
    inputs = _inputs(build.source, parse_target(build.target), build.numerics, build.options)
    return _submit(services, inputs, build.model, build.version)


def require_compiler() -> None:
    """Checks that the compiler is installed. Must be called before any part of a push is stored.

    Raises:
        Unsupported: the compiler is not installed here, so the key of the model's build cannot be computed.
    """
    try:
        toolchain.fingerprint()
    except PackageNotFoundError as error:
        raise Unsupported(
            f"this server cannot compile: the compiler's package {error.name} is not installed",
            hint="use a server that compiles",
        ) from error


def _inputs(source: Digest, target: Target, mode: str, options: Mapping[str, Any]) -> BuildInputs:
    require_compiler()
    return toolchain.build_inputs(source, target, mode, options)


def _check_still_there(services: Services, version: ModelVersion) -> None:
    """If the version has been deleted, withdraws the builds, because the deletion did not include them, and raises an
    error.
    """
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
    """Returns true if an artifact can still be served, that is, if all its parts exist with their full size.

    The bytes of the parts are not hashed here, but when the artifact is loaded. Hashing them here would make a cache
    hit as slow as the disk.
    """
    try:
        manifest = layout.manifest(artifact)
        sizes = [layout.blobs.size_bytes(part.digest) for part in (manifest.config, *manifest.layers)]
        is_verified = layout.attached(artifact, Report.NUMERICS) is not None
    except (NotFound, CorruptBlob, InvalidInput):
        return False
    return is_verified and sizes == [part.size_bytes for part in (manifest.config, *manifest.layers)]
