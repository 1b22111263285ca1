"""The port that outlives the servers that listen on it."""

from __future__ import annotations

import socket

import pytest

from service.api.grpc.port import reserve
from service.core.errors import Conflict, InvalidInput
from tests.support.data_plane import DataPlane, sample_tables


def test_a_port_is_reserved_once() -> None:
    with reserve("127.0.0.1", 0) as reserved:
        port = reserved.getsockname()[1]
        with pytest.raises(Conflict, match=f":{port} for gRPC"):
            reserve("127.0.0.1", port)
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
    reserve("127.0.0.1", port).close()


def test_a_port_of_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(Conflict):
        reserve("127.0.0.1", other.getsockname()[1])


def test_a_host_that_is_none() -> None:
    with pytest.raises(InvalidInput, match="not an address"):
        reserve("no.such.host.invalid", 0)


@pytest.mark.anyio
async def test_server_after_server_takes_the_reserved_port() -> None:
    with reserve("127.0.0.1", 0) as reserved:
        port = reserved.getsockname()[1]
        for _ in range(2):
            async with DataPlane(sample_tables(), grpc_port=port).lifespan():
                socket.create_connection(("127.0.0.1", port)).close()
