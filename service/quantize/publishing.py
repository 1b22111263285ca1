"""Runs a quantization on a server: reads a stored model and calibration set, and stores the result."""

from __future__ import annotations

from pathlib import Path

from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest
from service.compiler.sandbox import Limits
from service.core.builds.build import Progress, Stage
from service.core.builds.fixed import fixed_of
from service.core.builds.options import shapes_of
from service.core.builds.quantization import quantization_of
from service.core.digest import Digest
from service.core.errors import BuildTimedOut, CorruptBlob, NotFound
from service.core.settings import Settings
from service.core.system.cores import Core, build_cores
from service.quantize.sandboxed import Request, quantize
from service.quantize.stored import store

_NAME = "upload"  # how error messages name the calibration set


def quantize_stored(
    request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
) -> Digest:
    """Quantizes `request.source` with the options and the calibration set in the request.

    Args:
        scratch: an empty directory on the store's file system; the caller removes it.

    Returns:
        The digest of the result's manifest.

    Raises:
        OctetError: see `sandboxed.quantize`. Also raised if the calibration set is missing in the store.
        BuildCanceled: `progress` raises it if the build was canceled.
    """
    options = quantization_of(request.options)
    if options is None:
        raise ValueError("the build's options have no quantization")
    options.check(options.data is not None)
    data = None if options.data is None else _calibration_set(layout, options.data)
    own_request = Request(
        request.source.absolute(),
        data,
        options,
        name=_NAME,
        shapes=shapes_of(request.options),
        fixed=fixed_of(request.options),
    )
    try:
        result = quantize(own_request, scratch.absolute(), progress, settings, _limits(settings))
    except BuildTimedOut as error:
        error.hint = "use fewer samples, or raise OCTET_QUANTIZE_TIME_LIMIT_S"
        raise
    progress.stage(Stage.PUBLISH)
    return store(layout, request.source_digest, result.file, options.data, result.report)


def _calibration_set(layout: OciLayout, digest: Digest) -> Path:
    try:
        return layout.blobs.path(digest).absolute()
    except (NotFound, CorruptBlob) as error:
        raise type(error)(
            f"the calibration set cannot be read: {error.message}", stage=Stage.FETCH, hint="send it again"
        ) from error


def _limits(settings: Settings) -> Limits:
    processors = tuple(sorted(Core().union(*build_cores(settings.build_cores))))
    memory = settings.build_memory_limit_bytes
    return Limits(
        wall_s=settings.quantize_time_limit_s,
        cpu_s=settings.quantize_time_limit_s * len(processors),
        memory_bytes=memory,
        file_bytes=memory,
        threads=64 + 2 * len(processors),
        nice=settings.build_nice,
        processors=processors,
    )
