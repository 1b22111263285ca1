"""What the roles of a cluster ask of their settings and of the machine that they run on."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

from service.core.certificate import authorities_in
from service.core.errors import InvalidInput, Unsupported
from service.core.settings import Role, Settings
from service.core.target import Host, Target, parse_target

# How long a worker that is to end takes requests on, so that the API has heard of it.
NOTICE_S = 0.5
ALONE = "host"  # the pool that a server by itself is
_ELSEWHERE = "192.0.2.1"  # an address of nobody's (RFC 5737)


def check(settings: Settings, host: Host) -> None:
    """To be called before anything listens.

    Raises:
        InvalidInput: API and workers would not trust, or not understand, each other.
        UnknownTarget, Unsupported: as `target_of`.
    """
    if settings.role is Role.EMBEDDED:
        return
    if not settings.key_of_cluster:
        raise InvalidInput(
            "a cluster's API and workers know each other by a secret that they share, and there is none",
            hint="OCTET_CLUSTER_KEY=$(openssl rand -hex 32), or OCTET_CLUSTER_KEY_FILE",
        )
    if settings.role is Role.API and settings.cluster_ca is not None:
        authorities_in(settings.cluster_ca)
    if settings.role is Role.WORKER:
        target_of(settings, host)


def target_of(settings: Settings, host: Host) -> Target:
    """The target whose artifacts a worker serves.

    Raises:
        UnknownTarget: there is no such target.
        Unsupported: this machine cannot run it; the message says what it lacks.
    """
    name = settings.target or "host"
    target = host.target if name == "host" else parse_target(name)
    missing = target.missing_on(host)
    if missing:
        raise Unsupported(
            f"this machine cannot run {target}: it lacks {', '.join(sorted(missing))}",
            hint=f"it runs {', '.join(each.name for each in host.targets) or 'none of the targets'}",
        )
    return target


def served_targets(settings: Settings, host: Host) -> Sequence[str]:
    """Canonical names of the targets whose artifacts are loaded here, the best first."""
    match settings.role:
        case Role.API:
            return ()
        case Role.WORKER:
            return (target_of(settings, host).name,)
    return [target.name for target in host.targets]


def pool_of(settings: Settings, host: Host) -> str:
    """The pool that a worker belongs to; of a server by itself, the one that it is."""
    return settings.pool or (target_of(settings, host).name if settings.role is Role.WORKER else ALONE)


def address_of(settings: Settings) -> str:
    """By which the API reaches a worker: what it was told, or else where it listens. See `Worker.address`."""
    place = _place(settings)
    return place if settings.tls_cert is None else f"https://{place}"


def _place(settings: Settings) -> str:
    if settings.advertise is not None:
        has_port = settings.advertise.rpartition(":")[2].isdigit() and not settings.advertise.endswith("]")
        return settings.advertise if has_port else f"{settings.advertise}:{settings.port}"
    host = _own_address() if settings.host in ("", "0.0.0.0", "::") else settings.host
    return f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"


def _own_address() -> str:
    """What the host's name stands for; where that leads to this machine alone, as Debian has it, where the default
    route leaves from.
    """
    with suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not ip_address(address).is_loopback:
            return address
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        unconnected.connect((_ELSEWHERE, 9))  # of UDP: nothing is sent
        return str(unconnected.getsockname()[0])
    return "127.0.0.1"


def build_targets(settings: Settings) -> Sequence[str]:
    """Canonical names of the targets that a compile worker builds for; empty: all.

    Raises:
        UnknownTarget: one of them is no target.
    """
    names = [name.strip() for name in settings.build_targets.split(",") if name.strip()]
    return [parse_target(name).name for name in names]
