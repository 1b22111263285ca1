"""What the data plane is told: limits, models, who answers under which name, and keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service import __version__
from service.cache import OciLayout
from service.core.artifact import CONSTANTS_MEDIA_TYPE, LIBRARY_MEDIA_TYPE, ArtifactConfig
from service.core.compatibility import check_config_type
from service.core.digest import Digest, canonical_json
from service.core.metadata import NOTHING, ModelMetadata
from service.core.queueing import Scheduling
from service.core.settings import Auth, Settings
from service.core.signature import ModelSignature
from service.runtime.loading import check_code, check_host

Members = dict[str, Any]


@dataclass(frozen=True)
class Named:
    """A loaded model under one name.

    Attributes:
        version: a number or an alias; empty for requests that name none.
        main, canary: keys of loads; no canary: 0.
        versions: that there are of the model.
    """

    model: str
    version: str
    main: int
    versions: Sequence[str]
    canary: int = 0
    percent: int = 0


def configure(settings: Settings, not_ready: str = "") -> Members:
    """The limits of connections, as `settings` have them."""
    return {
        "type": "configure",
        "release": __version__,
        "head_timeout_s": settings.head_timeout_s,
        "stall_timeout_s": settings.stall_timeout_s,
        "min_body_bytes": settings.min_body_bytes,
        "max_head_bytes": settings.max_head_bytes,
        "max_body_bytes": settings.max_predict_bytes,
        "host": settings.host,
        "shared_memory": settings.shared_memory,
        "is_particular": settings.auth is not Auth.OFF,
        "not_ready": not_ready,
    }


def load(
    key: int,
    model: str,
    version: str,
    layout: OciLayout,
    artifacts: Sequence[tuple[int, Digest]],
    signature: ModelSignature,
    scheduling: Scheduling,
    metadata: ModelMetadata = NOTHING,
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
    configs = {digest: _config(layout, digest) for _, digest in artifacts}
    batches = max(batch for batch, _ in artifacts)
    known = metadata.to_json()
    return {
        "type": "load",
        "key": key,
        "model": model,
        "version": version,
        "target": str(configs[artifacts[0][1]].target),
        "parts": [_part(layout, batch, digest, configs[digest]) for batch, digest in artifacts],
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
        "signature": _signature(signature, batches, metadata.labels),
        **({"parameters": known} if known else {}),
    }


def routes(named: Sequence[Named]) -> Members:
    """Who answers, from now on, in place of all that was said before."""
    return {
        "type": "routes",
        "routes": [
            {
                "model": each.model,
                "version": each.version,
                "main": each.main,
                "canary": each.canary,
                "percent": each.percent,
                "versions": list(each.versions),
            }
            for each in named
        ],
    }


def certificate(chain: bytes, key: bytes) -> tuple[Members, bytes]:
    """The order to encrypt new connections, and the bytes behind it. Before the first one they are in plain text.

    Args:
        chain, key: PEM, the server's certificate first; the key without a password.
    """
    return {"type": "certificate", "chain_bytes": len(chain)}, chain + key


def no_keys() -> Members:
    """Requests need none."""
    return {"type": "keys", "is_asked": False, "keys": []}


def _config(layout: OciLayout, digest: Digest) -> ArtifactConfig:
    manifest = layout.manifest(digest)
    check_config_type(manifest.config.media_type)
    config = ArtifactConfig.from_json(json.loads(layout.blobs.read(manifest.config.digest)))
    check_host(config)
    return config


def _part(layout: OciLayout, batch: int, digest: Digest, config: ArtifactConfig) -> Members:
    files = {layer.media_type: layout.blobs.path(layer.digest) for layer in layout.manifest(digest).layers}
    check_code(config, files[LIBRARY_MEDIA_TYPE])
    return {
        "batch": batch,
        "artifact": str(digest),
        "config": canonical_json(config.to_json()).decode(),
        "library": str(files[LIBRARY_MEDIA_TYPE]),
        "constants": str(files[CONSTANTS_MEDIA_TYPE]),
    }


def _signature(signature: ModelSignature, batches: int, labels: Sequence[str]) -> Members:
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
        "labels": list(labels),
    }
