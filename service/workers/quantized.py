"""Adds the result of a quantization as a version of the model that was quantized, as if it had been pushed."""

from __future__ import annotations

from service.cache import OciLayout
from service.compiler.lowering import toolchain
from service.core.builds.build import Build
from service.core.builds.fixed import fixed_of, without_fixed
from service.core.builds.options import shapes_of, with_shapes
from service.core.builds.quantization import quantization_of
from service.core.digest import Digest
from service.core.errors import NotFound
from service.core.models.model import ModelVersion
from service.core.target import parse_target
from service.db import BuildStore, ModelStore
from service.quantize.formats import RESULT, RESULT_NUMERICS
from service.quantize.stored import stored
from service.workers.catalog import record_metadata, record_version


def add_for_all(layout: OciLayout, builds: BuildStore, models: ModelStore, build: Build, result: Digest) -> None:
    """Calls `add_quantized` for every version that requests the quantization. Versions that have been deleted are
    skipped.
    """
    for model, number, _ in builds.requests(build.id):
        try:
            add_quantized(layout, builds, models, build, result, models.version(model, number))
        except NotFound:
            continue


def add_quantized(
    layout: OciLayout, builds: BuildStore, models: ModelStore, build: Build, result: Digest, of: ModelVersion
) -> ModelVersion:
    """Adds the result file of a quantization as a version of the model, and requests the build of that version. Returns
    the existing version if it was added before.

    The version gets the metadata of the float model, including the picture preprocessing that the float model's file
    may have described.

    Raises:
        NotFound: the model has been deleted, or the result is lost.
        StorageFull: no space is left.
    """
    file = stored(layout, result).file
    version = models.push(of.name, file.digest, RESULT, file.size_bytes)
    record_version(layout, models, version)
    quantization = quantization_of(build.options)
    metadata = of.metadata if quantization is None else of.metadata.over(quantization.metadata)
    if metadata and not version.metadata:
        version = models.describe(of.name, version.number, metadata)
        record_metadata(layout, models, version)
    options = with_shapes(without_fixed(shapes_of(build.options), fixed_of(build.options)))
    inputs = toolchain.build_inputs(file.digest, parse_target(build.target), RESULT_NUMERICS, options)
    builds.submit(inputs, of.name, version.number)
    return version
