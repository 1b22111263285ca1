"""Creates artifacts of single kernels, without a model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from service.cache import Manifest, OciLayout
from service.compiler.kernels.cuda import nvrtc
from service.compiler.lowering.link import link
from service.core.artifacts.artifact import ARTIFACT_TYPE, CONSTANTS_MEDIA_TYPE, LIBRARY_MEDIA_TYPE, ArtifactConfig
from service.core.artifacts.call_plan import ALIGNMENT_BYTES, Buffer, Call, CallPlan, Launch, Space
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from service.core.builds.numerics import MODES
from service.core.digest import Digest, canonical_json
from service.core.elf import data_object
from service.core.models.signature import ModelSignature, TensorSpec
from service.core.target import Target


def linked(sources: Mapping[str, str], capability: str, target: Target) -> bytes:
    """Returns a library with the machine code of each source, under its kernel's name.

    Raises:
        BuildFailed: NVRTC is missing, or refuses a source.
    """

    def machine_code(symbol: str) -> bytes:
        return nvrtc.cubin(sources[symbol], capability, symbol)

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as compilers:
        objects = []
        for symbol, code in zip(sources, compilers.map(machine_code, sources), strict=True):
            objects.append(Path(scratch) / f"{symbol}.o")
            objects[-1].write_bytes(data_object(symbol, {symbol: code}, target.architecture))
        library = Path(scratch) / "library.so"
        link(objects, library, target)
        return library.read_bytes()


def put(
    layout: OciLayout,
    library: bytes,
    target: Target,
    buffers: Sequence[Buffer],
    calls: Sequence[tuple[Call, Launch]],
    constants: bytes = b"",
) -> Digest:
    """Writes an artifact that makes these calls. The artifact's inputs and outputs are the given buffers, as bytes."""
    plan = CallPlan(0, tuple(buffers), tuple(call for call, _ in calls), launches=tuple(launch for _, launch in calls))
    signature = ModelSignature(_tensors(buffers, Space.INPUT), _tensors(buffers, Space.OUTPUT))
    config = ArtifactConfig(signature, target.name, MODES[0], plan)
    layers = (
        layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, library),
        layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, constants or bytes(ALIGNMENT_BYTES)),
    )
    described = layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json(config.to_json()))
    return layout.put_manifest(Manifest(ARTIFACT_TYPE, described, layers, {}, subject=None)).digest


def _tensors(buffers: Sequence[Buffer], space: Space) -> tuple[TensorSpec, ...]:
    own = sorted((buffer for buffer in buffers if buffer.space is space), key=lambda buffer: buffer.at)
    return tuple(TensorSpec(f"{space.value}_{buffer.at}", "UINT8", (buffer.bytes,)) for buffer in own)
