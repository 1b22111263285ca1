"""The order to load a model, of whose artifacts the data plane runs the code: they are checked here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from service.cache import OciLayout
from service.core.artifact import CONSTANTS_MEDIA_TYPE, LIBRARY_MEDIA_TYPE, ArtifactConfig
from service.core.compatibility import check_config_type
from service.core.digest import Digest, canonical_json
from service.core.queueing import Scheduling
from service.core.signature import ModelSignature
from service.runtime.loading import check_code, check_host

Members = dict[str, Any]


def load(
    model: str,
    version: str,
    layout: OciLayout,
    artifacts: Sequence[tuple[int, Digest]],
    signature: ModelSignature,
    scheduling: Scheduling,
    *,
    is_suspect: bool = False,
) -> Members:
    """The order to load a model. Its artifacts are checked here, whose code the data plane runs.

    Args:
        artifacts: by the number of samples of a call; of 1 there are several where it has buckets, ascending.
        signature: of one sample, with its buckets.

    Raises:
        OctetError: one of them cannot run here, or is damaged.
    """
    parts = [part(layout, batch, digest) for batch, digest in artifacts]
    target = str(_config(layout, artifacts[0][1]).target)
    return load_parts(model, version, target, parts, signature, scheduling, is_suspect=is_suspect)


def load_parts(
    model: str,
    version: str,
    target: str,
    parts: Sequence[Members],
    signature: ModelSignature,
    scheduling: Scheduling,
    *,
    is_suspect: bool = False,
) -> Members:
    """As `load`, of parts that the caller vouches for."""
    return {
        "type": "load",
        "model": model,
        "version": version,
        "target": target,
        "parts": parts,
        "instances": scheduling.instances,
        "threads": scheduling.threads,
        "queue_size": scheduling.queue_size,
        "levels": scheduling.priority_levels,
        "max_batch": scheduling.max_batch,
        "max_delay_s": scheduling.max_delay_s,
        "max_wait_s": scheduling.max_wait_s,
        "timeout_s": scheduling.timeout_s,
        "most_sequences": scheduling.max_sequences,
        "sequence_idle_s": scheduling.sequence_idle_s,
        "is_suspect": is_suspect,
        "signature": _signature(signature, max(each["batch"] for each in parts)),
    }


def part(layout: OciLayout, batch: int, digest: Digest) -> Members:
    """An artifact, for calls of `batch` samples.

    Raises:
        OctetError: it cannot run here, or is damaged.
    """
    config = _config(layout, digest)
    check_host(config)
    files = {layer.media_type: layout.blobs.path(layer.digest) for layer in layout.manifest(digest).layers}
    check_code(config, files[LIBRARY_MEDIA_TYPE])
    return {
        "batch": batch,
        "artifact": str(digest),
        "config": canonical_json(config.to_json()).decode(),
        "library": str(files[LIBRARY_MEDIA_TYPE]),
        "constants": str(files[CONSTANTS_MEDIA_TYPE]),
    }


def _config(layout: OciLayout, digest: Digest) -> ArtifactConfig:
    manifest = layout.manifest(digest)
    check_config_type(manifest.config.media_type)
    return ArtifactConfig.from_json(json.loads(layout.blobs.read(manifest.config.digest)))


def _signature(signature: ModelSignature, batches: int) -> Members:
    def shapes(specs: Any) -> list[list[int]]:
        return [list(spec.shape) for spec in specs]

    whole: Mapping[str, Any] = signature.to_json()
    return {
        "inputs": whole["inputs"],
        "outputs": whole["outputs"],
        "buckets": [
            {"inputs": shapes(each.inputs), "outputs": shapes(each.outputs), "pads": each.pads}
            for each in signature.buckets
        ],
        "batches": batches,
        "is_batched": batches > 1,
        "keeps_state": bool(signature.states),
    }
