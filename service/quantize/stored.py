"""Quantizations in a store: the key of a quantization, and its result. This module does not load the compiler.

A result is an OCI manifest. Its config is the report, and its layers are the quantized file and, if there is one, the
calibration set. The manifest is not listed in an index. It is kept as long as the build exists that produced the
result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from service.cache import MANIFEST_MEDIA_TYPE, Descriptor, Manifest, OciLayout
from service.compiler.lowering import toolchain
from service.core.artifacts.artifact import SOURCE_ANNOTATION, SOURCE_MEDIA_TYPE
from service.core.builds.build import BuildInputs
from service.core.builds.quantization import ARTIFACT_TYPE, DATA_MEDIA_TYPE, REPORT_MEDIA_TYPE, is_quantization
from service.core.digest import Digest, canonical_json
from service.core.errors import CorruptBlob, InvalidInput, NotFound
from service.core.target import Target
from service.quantize.formats import RESULT_NUMERICS


@dataclass(frozen=True)
class Stored:
    """A result in the store.

    Attributes:
        file: the quantized ONNX file.
        report: the report on the quantization; see docs/how-to/quantize.md.
    """

    file: Descriptor
    report: Mapping[str, Any]


def versions(target: Target, options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the versions of all software that determines the result of a build or quantization."""
    own = {"octet_quantize": _digest()} if is_quantization(options) else {}
    return {**toolchain.versions(target), **own}


def build_inputs(source: Digest, target: Target, numerics: str, options: Mapping[str, Any]) -> BuildInputs:
    """Returns the inputs of the build for this request, which determine its key.

    Args:
        numerics: the numerics mode of a build that compiles. A quantization has the mode of its result's format
            instead, because the result is compiled in that mode.
    """
    own = RESULT_NUMERICS if is_quantization(options) else numerics
    return BuildInputs(source, target.name, own, versions(target, options), dict(options))


@cache
def _digest() -> str:
    return toolchain.digest_of_sources(Path(__file__).parent)


def store(layout: OciLayout, source: Digest, file: Path, data: Digest | None, report: Mapping[str, Any]) -> Digest:
    """Stores the result of quantizing `source`, and its calibration set if any. Returns the manifest's digest."""
    sets = () if data is None else (Descriptor(DATA_MEDIA_TYPE, data, layout.blobs.size_bytes(data)),)
    layers = (layout.put_blob_descriptor(SOURCE_MEDIA_TYPE, file), *sets)
    config = layout.put_blob_descriptor(REPORT_MEDIA_TYPE, canonical_json(report))
    manifest = Manifest(ARTIFACT_TYPE, config, layers, {SOURCE_ANNOTATION: source})
    return layout.put_blob_descriptor(MANIFEST_MEDIA_TYPE, manifest.to_bytes()).digest


def stored(layout: OciLayout, result: Digest) -> Stored:
    """Returns the result that `store` wrote.

    Raises:
        NotFound: a part of the result is missing.
        CorruptBlob: a part of the result is damaged.
    """
    manifest = layout.manifest(result)
    return Stored(manifest.layers[0], json.loads(layout.blobs.read(manifest.config.digest)))


def is_intact(layout: OciLayout, result: Digest) -> bool:
    """Returns true if all parts of the result exist and have their full size, including the calibration set."""
    try:
        manifest = layout.manifest(result)
        parts = (manifest.config, *manifest.layers)
        return [layout.blobs.size_bytes(part.digest) for part in parts] == [part.size_bytes for part in parts]
    except (NotFound, CorruptBlob, InvalidInput):
        return False
