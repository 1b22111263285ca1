"""Tests of the HTTP client of the data plane, with a server that sends prepared bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from service.api.control.predictions.plane_client import PlaneClient

pytestmark = pytest.mark.anyio

FOX = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Name: a\r\n\r\nfox"


class Server:
    """Sends the parts of one response for each request. A connection ends after a response that ends with `END`."""

    END = b"<end>"

    def __init__(self, responses: Sequence[bytes]) -> None:
        self.responses, self.requests, self.connections = list(responses), list[bytes](), 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self.responses:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            self.requests.append(head)
            response = self.responses.pop(0)
            writer.write(response.removesuffix(self.END))
            if response.endswith(self.END):
                break
        writer.close()


@asynccontextmanager
async def connected(*responses: bytes) -> AsyncIterator[tuple[PlaneClient, Server]]:
    server = Server(responses)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    client = PlaneClient("127.0.0.1", listener.sockets[0].getsockname()[1])
    try:
        yield client, server
    finally:
        client.close()
        listener.close()


async def test_connections_are_used_again() -> None:
    async with connected(FOX, FOX.replace(b"200", b"404")) as (client, server):
        first, second = [await client.request("GET", f"/{each}", {"x-id": "7"}) for each in "ab"]
    assert (first.status, first.content, first.headers["x-name"], first.is_success) == (200, b"fox", "a", True)
    assert (second.status, second.is_success) == (404, False)
    assert server.connections == 1
    assert [each.split(b"\r\n")[0] for each in server.requests] == [b"GET /a HTTP/1.1", b"GET /b HTTP/1.1"]
    assert b"x-id: 7" in server.requests[0]


@pytest.mark.parametrize("last", [FOX + Server.END, FOX.replace(b"X-Name: a", b"Connection: close")])
async def test_a_connection_that_has_ended_is_replaced(last: bytes) -> None:
    async with connected(last, FOX, FOX) as (client, server):
        for _ in range(3):
            assert (await client.request("GET", "/", {})).content == b"fox"
            await asyncio.sleep(0.01)  # the end of the connection may arrive before or after the next request
    assert server.connections >= 2


async def test_a_response_may_have_chunks() -> None:
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nfo\r\n1\r\nx\r\n0\r\n\r\n"
    async with connected(chunks) as (client, _):
        assert (await client.request("POST", "/", {}, b"body")).content == b"fox"


@pytest.mark.parametrize("response", [FOX[:-1] + Server.END, b"SSH-2.0\r\n\r\n", Server.END])
async def test_a_broken_response_is_an_error(response: bytes) -> None:
    async with connected(response) as (client, server):
        with pytest.raises(OSError, match="response"):
            await client.request("GET", "/", {})
    assert len(server.requests) == 1


async def test_a_canceled_request_closes_its_connection() -> None:
    async with connected(b"", FOX) as (client, server):
        task = asyncio.create_task(client.request("GET", "/", {}))
        while not server.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.request("GET", "/", {})).content == b"fox"
    assert server.connections == 2
