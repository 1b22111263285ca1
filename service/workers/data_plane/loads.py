"""The order to load a model. The data plane runs the code of the model's artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.core.cluster.queueing import Scheduling
from service.core.digest import canonical_json
from service.core.models.buckets import merge_buckets
from service.core.models.signature import ModelSignature
from service.core.target import parse_target
from service.runtime.stored import StoredArtifact

Members = dict[str, Any]


def load(
    model: str,
    version: str,
    artifacts: Sequence[tuple[int, StoredArtifact]],
    scheduling: Scheduling,
    *,
    is_suspect: bool = False,
) -> tuple[Members, ModelSignature]:
    """Returns the order to load a model, and the model's signature for a single sample, with its buckets.

    Args:
        artifacts: checked artifacts, each with the number of samples of a call. If the model has buckets, there are
            several artifacts with one sample, one for each bucket.

    Raises:
        ValueError: the artifacts of one sample are not variants of one model.
    """
    ones = [artifact.config.signature for batch, artifact in artifacts if batch == 1]
    signature = merge_buckets(ones) if len(ones) > 1 or ones[0].is_open else ones[0]

    def sort_key(size: tuple[int, StoredArtifact]) -> tuple[int, int]:
        batch, artifact = size
        is_bucket = batch == 1 and bool(signature.buckets)
        return batch, signature.buckets.index(artifact.config.signature) if is_bucket else 0

    parts = [part(*size) for size in sorted(artifacts, key=sort_key)]
    target = str(artifacts[0][1].config.target)
    return load_parts(model, version, target, parts, signature, scheduling, is_suspect=is_suspect), signature


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
    """Returns the order to load a model, like `load`, from parts that the caller has checked."""
    return {
        "type": "load",
        "model": model,
        "version": version,
        "target": target,
        "parts": parts,
        "instances": scheduling.instances_on(parse_target(target).device),
        "threads": scheduling.threads,
        "queue_size": scheduling.queue_size,
        "levels": scheduling.priority_levels,
        "max_batch": scheduling.max_batch,
        "max_delay_s": scheduling.max_delay_s,
        "max_wait_s": scheduling.max_wait_s,
        "timeout_s": scheduling.timeout_s,
        "call_limit_s": scheduling.call_limit_s,
        "most_sequences": scheduling.max_sequences,
        "sequence_idle_s": scheduling.sequence_idle_s,
        "is_suspect": is_suspect,
        "signature": _signature(signature, max(each["batch"] for each in parts)),
    }


def part(batch: int, artifact: StoredArtifact) -> Members:
    """Returns the part of a load order for a checked artifact whose calls take `batch` samples."""
    return {
        "batch": batch,
        "artifact": str(artifact.digest),
        "config": canonical_json(artifact.config.to_json()).decode(),
        "library": str(artifact.library),
        "constants": str(artifact.constants),
    }


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
