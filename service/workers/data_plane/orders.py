"""What the data plane is told: limits, models, who answers under which name, and keys."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from hashlib import sha256
from typing import Any

from service import __version__
from service.core.metadata import ModelMetadata
from service.core.picture import MAX_PIXELS
from service.core.settings import Auth, Settings
from service.core.usage import KnownKey

Members = dict[str, Any]

_EPOCH = date(1970, 1, 1)
_HEAD_BYTES = 64 << 10  # what a message may have beside its tensors
_MAX_CALLS = 1000  # under way at a time: each holds a message before it is known which model's queue it belongs to
_BUFFERED_MESSAGES = 16  # of the largest, together
_LEAST_MESSAGE_BYTES = 256 << 20  # or a stream of many small ones would find no room
_MAX_PICTURES = 256  # that wait to be decoded
_LARGEST_PICTURES = 8  # of the largest, together
_LEAST_PICTURE_BYTES = 256 << 20
_MOST_CONNECTIONS = 100_000


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


@dataclass(frozen=True)
class Worker:
    """Another machine's data plane, or one beside, that answers predictions.

    Attributes:
        id: another after each start.
        capacity: calls at once.
        state: `ready`, or it is sent nothing more.
        loaded: model and version, as they are asked for, of what it has in memory.
        key: what it knows the router by; empty for the cluster's.
        server_name: what its certificate has to be for; empty: it is spoken to in plain text.
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
    """Where a name can be answered.

    Attributes:
        pools: whose workers could load it.
        reason: why there are none; a sentence without its full stop.
    """

    model: str
    version: str
    pools: Sequence[str] = ()
    reason: str = ""


def configure(settings: Settings, not_ready: str = "", traced: float = -1.0) -> Members:
    """The limits of connections, as `settings` have them.

    Args:
        not_ready: why requests are not welcome; empty where they are.
        traced: which part of the requests to tell of that do not say it themselves; below 0: of none at all.
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
        "is_particular": settings.auth is not Auth.OFF,
        "not_ready": not_ready,
        "traced": traced,
        "peers": _peers(settings),
    }


def describe(metadata: ModelMetadata) -> Members:
    """What is known of a loaded model."""
    known = metadata.to_json()
    return {"type": "describe", "labels": list(metadata.labels), **({"parameters": known} if known else {})}


def unload(key: int) -> Members:
    """A model goes when its last request is over."""
    return {"type": "unload", "key": key}


def routes(named: Sequence[Named]) -> Members:
    """Who answers, from now on, in place of all that was said before."""
    return {"type": "routes", "routes": [asdict(each) for each in named]}


def certificate(chain: bytes, key: bytes) -> tuple[Members, bytes]:
    """The order to encrypt new connections, and the bytes behind it. Before the first one they are in plain text.

    Args:
        chain, key: PEM, the server's certificate first; the key without a password.
    """
    return {"type": "certificate", "chain_bytes": len(chain)}, chain + key


def authority(certificates: bytes) -> tuple[Members, bytes]:
    """The order to know workers by certificates of these authorities, PEM, and the bytes behind it; empty: by none."""
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
    """Who answers predictions from now on: no model of this process does.

    Args:
        cluster_key: what they know the API by.
        workers, models: in the place of what was said of the same id, or name.
        gone: ids of workers that are there no more.
        forgotten: names, each with its version, of which nothing is known any more.
        resets: whether this is all, and what else was said before counts no more.
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


def keys(is_asked: bool, known: Iterable[KnownKey] = (), cluster_key: str = "") -> Members:
    """Who may ask.

    Args:
        is_asked: whether requests need a key.
        known: the keys, and what is known of their use.
        cluster_key: what comes with it was admitted by the API; of a worker. The data plane gets its digest.
    """
    digest = sha256(cluster_key.encode()).hexdigest() if cluster_key else ""
    return {"type": "keys", "is_asked": is_asked, "keys": [_key(each) for each in known], "cluster_sha256": digest}


def _key(known: KnownKey) -> Members:
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
        "share": settings.peer_share,
    }


def _affordable_connections() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = descriptors == resource.RLIM_INFINITY
    return _MOST_CONNECTIONS if unlimited else min(_MOST_CONNECTIONS, descriptors * 3 // 4)
