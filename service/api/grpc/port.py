"""The port for gRPC, reserved by the process that outlives the server: gRPC's library accepts no open socket."""

from __future__ import annotations

import socket

from service.api.ops.sockets import notice_lost_clients
from service.core.errors import Conflict, InvalidInput

_BACKLOG = 2048


def reserve(host: str, port: int) -> socket.socket:
    """A socket that listens to nothing, and holds a port for sockets of this user that share it (`SO_REUSEPORT`).

    So the port is known before there is a server, where 0 takes a free one, and no other process gets it while there is
    none.

    Raises:
        Conflict: it is taken.
        InvalidInput: `host` is no address.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, port), family=family) as alone:  # fails if another process shares it already
            address = alone.getsockname()
        shared = socket.socket(family, socket.SOCK_STREAM)
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind(address)
        return shared
    except socket.gaierror as error:
        raise InvalidInput(
            f"{host!r} is not an address to listen on: {error.strerror}", hint="--host 127.0.0.1"
        ) from error
    except OSError as error:
        raise _taken(host, port, error) from error


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, does not block, and may share a port that was reserved.

    Raises:
        Conflict: it is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=_BACKLOG, reuse_port=True)
    except OSError as error:
        raise _taken(host, port, error) from error
    notice_lost_clients(listener)
    listener.setblocking(False)
    return listener


def _taken(host: str, port: int, error: OSError) -> Conflict:
    return Conflict(
        f"cannot listen on {host}:{port} for gRPC: {error.strerror}",
        hint="choose another --grpc-port; 0 takes a free one, and --no-grpc turns gRPC off",
    )
