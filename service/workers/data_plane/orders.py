"""The orders that the data plane receives: limits, models, the routes of model names, and API keys."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

from service import __version__
from service.core.access.usage import KeyUsage
from service.core.models.metadata import ModelMetadata
from service.core.models.picture import MAX_PIXELS
from service.core.models.task import Task
from service.core.models.text import Side, TextProcessing
from service.core.settings import Auth, Settings

Members = dict[str, Any]

_EPOCH = date(1970, 1, 1)
_HEAD_BYTES = 64 << 10  # the size of a message without its tensors
# The most gRPC calls at a time. A queue's limit cannot bound them: each buffers a message before its model is known.
_MAX_CALLS = 1000
_BUFFERED_MESSAGES = 16  # the total buffer has room for this many messages of the largest size
_LEAST_MESSAGE_BYTES = 256 << 20  # the least size of the total buffer, so that a stream of many small messages has room
_MAX_PICTURES = 256  # the maximum of pictures that wait to be decoded
_LARGEST_PICTURES = 8  # the total buffer has room for this many pictures of the largest size
_LEAST_PICTURE_BYTES = 256 << 20
_MAX_TEXTS = 16384  # the maximum of texts that wait to be tokenized
_MAX_TEXT_BYTES = 64 << 20
_MOST_CONNECTIONS = 100_000


@dataclass(frozen=True)
class Named:
    """A loaded model, as the target of the requests for one name.

    Attributes:
        version: a number or an alias; an empty string means requests without a version.
        main, canary: the keys of loaded models; `canary` is 0 if the name has no canary.
        versions: all versions that the model has.
    """

    model: str
    version: str
    main: int
    versions: Sequence[str]
    canary: int = 0
    percent: int = 0


@dataclass(frozen=True)
class Worker:
    """A data plane, on another machine or on this one, to which predictions are forwarded.

    Attributes:
        id: an id that changes each time the worker starts.
        capacity: the number of concurrent calls.
        state: only a worker whose state is `ready` gets requests.
        loaded: the model and version, as requests name them, of each model that the worker has in memory.
        key: the key that the router sends to the worker; an empty string means the cluster's key.
        server_name: the name that the worker's certificate must be valid for; empty if the connection is in plain text.
    """

    id: str
    pool: str
    capacity: float
    state: str
    loaded: Sequence[tuple[str, str]] = ()
    key: str = ""
    server_name: str = ""


@dataclass(frozen=True)
class Servable:
    """The pools that can answer requests for a name.

    Attributes:
        pools: the pools whose workers could load the model.
        reason: the reason if no pool can answer, as a sentence without its full stop.
    """

    model: str
    version: str
    pools: Sequence[str] = ()
    reason: str = ""


def configure(settings: Settings, not_ready: str = "", traced: float = -1.0) -> Members:
    """Returns the order that sets the limits of connections, as in `settings`.

    Args:
        not_ready: the reason why requests are refused; empty if they are accepted.
        traced: the fraction to trace of those requests whose `traceparent` header does not decide it. If negative, no
            request is traced.
    """
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
        "cors_origins": list(settings.origins),
        "is_particular": settings.auth is not Auth.OFF,
        "not_ready": not_ready,
        "traced": traced,
        "peers": _peers(settings),
    }


def describe(metadata: ModelMetadata, tokenizer: Path | None = None, *, is_partial: bool = False) -> Members:
    """Returns the order with the metadata of a loaded model.

    Args:
        tokenizer: the file of the tokenizer in the metadata; None without a tokenizer, or if its file is lost.
        is_partial: true if the model's builds for longer texts are missing. Such texts are refused, not truncated.
    """
    text = metadata.text.to_json() | ({"is_partial": True} if is_partial else {})
    known = metadata.to_json()
    preprocessing = metadata.of_pictures.to_json()
    return {
        "type": "describe",
        "labels": list(metadata.labels),
        **({"parameters": known} if known else {}),
        **({"preprocessing": preprocessing} if preprocessing else {}),
        **({"tokenizer": str(tokenizer), "text": text} if tokenizer else {}),
        **({"embedding": _embedding(metadata.text)} if metadata.task is Task.EMBED else {}),
    }


def _embedding(text: TextProcessing) -> Members:
    """Returns what the data plane needs to compute embeddings: `native/plane/request/embedding_rules.h`."""
    return {
        "output": text.output,
        "pooling": list(text.pooling),
        "normalizes": bool(text.normalize),
        "pads_left": text.padding_side is Side.LEFT,
        "pad_id": text.pad_id or 0,
        "inputs": dict(text.all_inputs),
        "prompts": dict(text.prompts),
        "default_prompt": text.default_prompt,
    }


def unload(key: int) -> Members:
    """Returns the order to unload a model when its last request is over."""
    return {"type": "unload", "key": key}


def routes(named: Sequence[Named]) -> Members:
    """Returns the order with all routes from model names to loaded models. The order replaces all earlier routes."""
    return {"type": "routes", "routes": [asdict(each) for each in named]}


def samples(shares: Mapping[int, float]) -> Members:
    """Returns the order to send samples of answered requests to the control plane. The order replaces the earlier one.

    Args:
        shares: the fraction of requests to send, by the key of a loaded model. Other models are not sampled.
    """
    return {"type": "samples", "models": [{"key": key, "share": share} for key, share in sorted(shares.items())]}


def certificate(chain: bytes, key: bytes) -> tuple[Members, bytes]:
    """Returns the order to encrypt new connections, and the bytes that follow it. Before the first such order,
    connections are in plain text.

    Args:
        chain, key: in PEM format. The chain starts with the server's certificate; the key has no password.
    """
    return {"type": "certificate", "chain_bytes": len(chain)}, chain + key


def authority(certificates: bytes) -> tuple[Members, bytes]:
    """Returns the order to trust workers with certificates of these authorities (PEM), and the bytes that follow it.

    With empty `certificates`, no worker's certificate is trusted.
    """
    return {"type": "authority"}, certificates


def workers(
    cluster_key: str,
    workers: Iterable[Worker],
    models: Iterable[Servable],
    gone: Iterable[str] = (),
    forgotten: Iterable[tuple[str, str]] = (),
    *,
    resets: bool = True,
) -> Members:
    """Returns the order to forward predictions to these workers. After it, no model in the data plane's own memory
    answers predictions.

    Args:
        cluster_key: the key that workers accept from the API.
        workers, models: rows that replace the earlier rows with the same id or name.
        gone: ids of workers to remove.
        forgotten: the names to remove, each as a model and a version.
        resets: true if the rows are complete, so that all earlier rows are removed.
    """
    return {
        "type": "workers",
        "resets": resets,
        "cluster_key": cluster_key,
        "workers": [dict(vars(each)) for each in workers],
        "gone": list(gone),
        "models": [dict(vars(each)) for each in models],
        "forgotten": list(forgotten),
    }


def keys(is_required: bool, known: Iterable[KeyUsage] = (), cluster_key: str = "") -> Members:
    """Returns the order with the keys whose requests are accepted.

    Args:
        is_required: true if requests need a key.
        known: the keys, and how often each has been used so far.
        cluster_key: used on workers: the API has already admitted a request with this key. The data plane gets only the
            key's digest.
    """
    digest = sha256(cluster_key.encode()).hexdigest() if cluster_key else ""
    return {"type": "keys", "is_asked": is_required, "keys": [_key(each) for each in known], "cluster_sha256": digest}


def _key(known: KeyUsage) -> Members:
    key = known.key
    return {
        "id": key.id,
        "sha256": key.digest,
        "scopes": sorted(key.scopes),
        "per_s": key.limits.requests_per_s or 0,
        "per_day": key.limits.requests_per_day or 0,
        "sharers": known.sharers,
        "day": (known.day - _EPOCH).days,
        "used": known.used,
        "tenant": key.tenant,
        "is_valid": key.revoked_at is None,
    }


def _peers(settings: Settings) -> Members:
    largest_bytes = settings.max_predict_bytes + _HEAD_BYTES
    return {
        "max_connections": settings.max_connections or _affordable_connections(),
        "max_calls": _MAX_CALLS,
        "max_message_bytes": max(_LEAST_MESSAGE_BYTES, _BUFFERED_MESSAGES * largest_bytes),
        "max_pictures": _MAX_PICTURES,
        "max_picture_bytes": max(_LEAST_PICTURE_BYTES, _LARGEST_PICTURES * largest_bytes),
        "max_pixels": _LARGEST_PICTURES * MAX_PIXELS,
        "max_texts": _MAX_TEXTS,
        "max_text_bytes": _MAX_TEXT_BYTES,
        "share": settings.peer_share,
    }


def _affordable_connections() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = descriptors == resource.RLIM_INFINITY
    return _MOST_CONNECTIONS if unlimited else min(_MOST_CONNECTIONS, descriptors * 3 // 4)
