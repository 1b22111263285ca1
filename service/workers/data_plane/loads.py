"""The order to load a model, of whose artifacts the data plane runs the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.core.buckets import opened
from service.core.digest import canonical_json
from service.core.queueing import Scheduling
from service.core.signature import ModelSignature
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
    """The order to load a model, and its signature: of one sample, with its buckets.

    Args:
        artifacts: checked, by the number of samples of a call; of 1 there are several where it has buckets.

    Raises:
        ValueError: those of one sample are not one model.
    """
    ones = [artifact.config.signature for batch, artifact in artifacts if batch == 1]
    signature = opened(ones) if len(ones) > 1 else ones[0]

    def place(size: tuple[int, StoredArtifact]) -> tuple[int, int]:
        batch, artifact = size
        is_bucket = batch == 1 and bool(signature.buckets)
        return batch, signature.buckets.index(artifact.config.signature) if is_bucket else 0

    parts = [part(*size) for size in sorted(artifacts, key=place)]
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
    """As `load`, of parts that the caller vouches for."""
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
    """An artifact that was checked, for calls of `batch` samples."""
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
