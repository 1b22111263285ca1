"""Pictures and texts are admitted by items, bytes and pixels of each client, and only from callers with a key."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.core.digest import digest_of
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.models.text import TextProcessing
from tests.support import runners
from tests.support.data_plane import DataPlane, client_of
from tests.support.pictures import large_png
from tests.support.runners import digits, encoder
from tests.support.tables import Tables
from tests.support.tokenizers import wordpiece
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio

RAW = {"Inference-Header-Content-Length": "0"}


@pytest.fixture
def tables() -> Tables:
    data = wordpiece().to_str().encode()
    path = runners.folder() / "admission.json"
    path.write_bytes(data)
    tables = Tables()
    tables.tokenizers[digest_of(data)] = path
    tables.model("encoder", encoder)
    tables.metadata_by_version["encoder", 1] = ModelMetadata(
        task=Task.EMBED, text=TextProcessing(digest_of(data), len(data))
    )
    tables.model("digits", digits)
    return tables


class Silent:
    """A preprocessing process that never answers."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.received = b""

    async def __call__(self, connection: socket.socket) -> None:
        with connection:
            while data := await asyncio.get_running_loop().sock_recv(connection, 1 << 16):
                self.received_bytes += len(data)
                self.received = (self.received + data)[-(1 << 16) :]


def texts(count: int, size: int = 1) -> dict[str, Any]:
    return {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [count], "data": ["x" * size] * count}]}


def from_address(client: httpx.AsyncClient, address: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(local_address=address, limits=httpx.Limits(max_connections=None))
    return httpx.AsyncClient(base_url=client.base_url, transport=transport, timeout=60)


@pytest.mark.parametrize(
    ("count", "size", "admitted"), [(1024, 1, 12), pytest.param(8, 1 << 20, 6, marks=pytest.mark.slow)]
)
async def test_texts_of_a_client_are_limited_by_number_and_bytes(
    tables: Tables, count: int, size: int, admitted: int
) -> None:
    plane = DataPlane(tables, scheduling={"queue_size": 64})
    plane.preprocess = Silent()
    infer = "/v2/models/encoder/infer"
    async with client_of(plane) as client, from_address(client, "127.0.0.9") as greedy:
        tasks = [asyncio.create_task(greedy.post(infer, json=texts(count, size))) for _ in range(admitted + 4)]
        try:
            refused, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            response = refused.pop().result()
            assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
            assert response.json()["detail"] == "too many texts of this client wait to be tokenized"
            for path, request in ((infer, {"json": texts(1)}), ("/v2/models/digits/infer", {"content": PNG})):
                other = await client.post(path, **request, headers={**RAW, "octet-timeout-ms": "50"})
                assert other.status_code in (400, 504)  # admitted
            await eventually_async(lambda: sum(not task.done() for task in tasks) <= admitted)
            assert not all(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_pictures_of_all_clients_together_are_limited(tables: Tables) -> None:
    plane = DataPlane(tables, scheduling={"queue_size": 64})
    plane.preprocess = Silent()
    large, admitted = large_png(), 0
    async with client_of(plane) as client, AsyncExitStack() as stack:
        tasks = []
        for index in range(12):
            each = await stack.enter_async_context(from_address(client, f"127.0.1.{index + 1}"))
            tasks += [
                asyncio.create_task(each.post("/v2/models/digits/infer", content=large, headers=RAW)) for _ in range(4)
            ]
        try:
            await asyncio.wait(tasks, timeout=3)
            admitted = sum(not task.done() for task in tasks)
            assert all(task.result().status_code == 429 for task in tasks if task.done())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert 6 <= admitted <= 8  # pixels: 256 million, of which each picture has 33 million


async def test_a_text_is_withdrawn_when_its_deadline_passes(tables: Tables) -> None:
    plane = DataPlane(tables)
    silent = plane.preprocess = Silent()
    async with client_of(plane) as client:
        headers = {"octet-timeout-ms": "100"}
        response = await client.post("/v2/models/encoder/infer", json=texts(1), headers=headers)
        assert (response.status_code, response.json()["code"]) == (504, "deadline_passed")
        await eventually_async(lambda: b'"type":"withdraw"' in silent.received)


PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de")


async def test_a_caller_without_a_key_sends_no_body_and_reaches_no_process(tables: Tables, tmp_path: Path) -> None:
    plane = DataPlane(tables, data_dir=tmp_path, admin_key="octet_cluster_" + 48 * "x")
    silent = plane.preprocess = Silent()
    size = 48 << 20
    async with client_of(plane) as client:
        url = client.base_url
        assert url.port is not None
        head = f"POST /v2/models/digits/infer HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {size}\r\n"
        opened = [await asyncio.open_connection(url.host, url.port) for _ in range(40)]
        before_bytes = _resident_bytes(plane)
        for _, writer in opened:
            writer.write(f"{head}Inference-Header-Content-Length: 0\r\nContent-Type: image/png\r\n\r\n".encode())
            writer.write(PNG)
        for reader, writer in opened:
            assert b" 401 " in await reader.readline()
            writer.close()
        assert _resident_bytes(plane) - before_bytes < 16 << 20
    assert silent.received_bytes == 0


def _resident_bytes(plane: DataPlane) -> int:
    assert plane.process is not None
    return int(Path(f"/proc/{plane.process.pid}/statm").read_text().split()[1]) * 4096
