"""The roles of a cluster: checks of their settings and their machine, and the target, pool and address of a worker."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

from service.core.cluster.certificate import read_authorities
from service.core.cluster.settings import Role
from service.core.errors import InvalidInput, Unsupported
from service.core.settings import Settings
from service.core.target import Host, Target, parse_target

# A worker that is about to end still accepts requests for this long, so that the API first learns that it ends.
NOTICE_S = 0.5
ALONE = "host"  # the name of the pool that a single server forms
_ELSEWHERE = "192.0.2.1"  # an address that no machine has (RFC 5737)


def check(settings: Settings, host: Host) -> None:
    """Checks the settings of a cluster role. Call it before the process listens on any port.

    Raises:
        InvalidInput: the cluster key is not set, or the file of certificate authorities cannot be used.
        UnknownTarget, Unsupported: as in `target_of`, for a worker.
    """
    if settings.role is Role.EMBEDDED:
        return
    if not settings.key_of_cluster:
        raise InvalidInput(
            "the API and the workers of a cluster authenticate each other by a shared key, and none is set",
            hint="set OCTET_CLUSTER_KEY=$(openssl rand -hex 32), or OCTET_CLUSTER_KEY_FILE",
        )
    if settings.role is Role.API and settings.cluster_ca is not None:
        read_authorities(settings.cluster_ca)
    if settings.role is Role.WORKER:
        target_of(settings, host)


def target_of(settings: Settings, host: Host) -> Target:
    """Returns the target whose artifacts a worker serves.

    Raises:
        UnknownTarget: no target has this name.
        Unsupported: this machine cannot run artifacts for the target; the message lists the features that it lacks.
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
    """Returns the canonical names of the targets whose artifacts this process loads, the best first."""
    match settings.role:
        case Role.API:
            return ()
        case Role.WORKER:
            return (target_of(settings, host).name,)
    return [target.name for target in host.targets]


def pool_of(settings: Settings, host: Host) -> str:
    """Returns the name of the pool that a worker belongs to. A single server forms the pool `ALONE`."""
    return settings.pool or (target_of(settings, host).name if settings.role is Role.WORKER else ALONE)


def address_of(settings: Settings) -> str:
    """Returns the address at which the API reaches a worker, in the form of `Worker.address`: the setting `advertise`,
    or else the address that the worker listens on.
    """
    position = _place(settings)
    return position if settings.tls_cert is None else f"https://{position}"


def _place(settings: Settings) -> str:
    if settings.advertise is not None:
        has_port = settings.advertise.rpartition(":")[2].isdigit() and not settings.advertise.endswith("]")
        return settings.advertise if has_port else f"{settings.advertise}:{settings.port}"
    host = _own_address() if settings.host in ("", "0.0.0.0", "::") else settings.host
    return f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"


def _own_address() -> str:
    """Returns the address that the host's name resolves to.

    If that is a loopback address, as on Debian, returns the address of the network interface of the default route.
    """
    with suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not ip_address(address).is_loopback:
            return address
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        unconnected.connect((_ELSEWHERE, 9))  # connecting a UDP socket sends no packet
        return str(unconnected.getsockname()[0])
    return "127.0.0.1"


def build_targets(settings: Settings) -> Sequence[str]:
    """Returns the canonical names of the targets that a compile worker builds for; empty for all targets.

    Raises:
        UnknownTarget: a name in the setting is not a target.
    """
    names = [name.strip() for name in settings.build_targets.split(",") if name.strip()]
    return [parse_target(name).name for name in names]
