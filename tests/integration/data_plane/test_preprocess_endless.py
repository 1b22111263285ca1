"""A request that takes too long to preprocess fails alone. Other requests are repeated by the next process, and only
the client that sent it may not use the tokenizer for a while.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from service.core.digest import digest_of
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Task
from service.core.models.text import TextProcessing
from service.workers.data_plane.frames import Frames, frame
from service.workers.preprocess.process import answer
from tests.support import runners
from tests.support.data_plane import DataPlane, client_of
from tests.support.runners import encoder
from tests.support.tables import Tables
from tests.support.tokenizers import wordpiece

pytestmark = pytest.mark.anyio

INFER = "/v2/models/encoder/infer"
TEXT = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["fox"]}]}
ENDLESS = {"code": "too_large", "detail": "the request takes too long to preprocess", "hint": "", "is_endless": True}


@pytest.fixture
def tables() -> Tables:
    data = wordpiece().to_str().encode()
    path = runners.folder() / "endless.json"
    path.write_bytes(data)
    tables = Tables()
    tables.tokenizers[digest_of(data)] = path
    tables.model("encoder", encoder)
    text = TextProcessing(digest_of(data), len(data))
    tables.metadata_by_version["encoder", 1] = ModelMetadata(task=Task.EMBED, text=text)
    return tables


async def question_of(connection: socket.socket) -> int:
    """Returns the number of the first question that arrives."""
    frames = Frames()
    while True:
        data = await asyncio.get_running_loop().sock_recv(connection, 1 << 16)
        for members, _ in frames.feed(data):
            return int(members["question"])


def processes(*sent: dict[str, Any]) -> Callable[[socket.socket], Coroutine[Any, Any, None]]:
    """Returns the work of processes, each of which sends one of `sent` after the first question, and ends. The ones
    after them do their work.
    """
    remaining = list(sent)

    async def work(connection: socket.socket) -> None:
        if not remaining:
            await answer(connection)
            return
        with connection:
            number = await question_of(connection)
            message = {name: number if value == "NUMBER" else value for name, value in remaining.pop(0).items()}
            await asyncio.get_running_loop().sock_sendall(connection, frame(message))
            await asyncio.sleep(0.05)

    return work


async def test_a_process_that_leaves_does_not_count_as_an_attempt(tables: Tables) -> None:
    plane = DataPlane(tables)
    plane.preprocess = processes(*[{"type": "leaving", "suspects": []}] * 4)
    async with client_of(plane) as client:
        assert (await client.post(INFER, json=TEXT)).status_code == 200


async def test_a_suspect_is_repeated_once(tables: Tables) -> None:
    plane = DataPlane(tables)
    leaving = {"type": "leaving", "suspects": [1]}
    plane.preprocess = processes(leaving, leaving)
    async with client_of(plane) as client:
        response = await client.post(INFER, json=TEXT)
        assert (response.status_code, response.json()["code"]) == (503, "restarting")


async def test_a_client_with_an_endless_text_is_refused_for_a_while_and_others_are_not(tables: Tables) -> None:
    plane = DataPlane(tables)
    endless = {"type": "answer", "question": "NUMBER", "problem": ENDLESS}
    plane.preprocess = processes(endless)
    async with client_of(plane) as client:
        transport = httpx.AsyncHTTPTransport(local_address="127.0.0.9")
        async with httpx.AsyncClient(base_url=client.base_url, transport=transport, timeout=60) as other:
            response = await client.post(INFER, json=TEXT)
            assert (response.status_code, response.json()["code"]) == (413, "too_large")
            response = await client.post(INFER, json=TEXT)
            assert (response.status_code, response.json()["code"]) == (503, "not_ready")
            assert "ended while it used this tokenizer" in response.json()["detail"]
            assert (await other.post(INFER, json=TEXT)).status_code == 200


async def test_a_tokenizer_that_is_endless_for_two_clients_is_refused_for_all(tables: Tables) -> None:
    plane = DataPlane(tables)
    endless = {"type": "answer", "question": "NUMBER", "problem": ENDLESS}
    plane.preprocess = processes(endless, endless)
    async with client_of(plane) as client:
        for address, status in (("127.0.0.8", 413), ("127.0.0.9", 413), ("127.0.0.7", 503)):
            transport = httpx.AsyncHTTPTransport(local_address=address)
            async with httpx.AsyncClient(base_url=client.base_url, transport=transport, timeout=60) as each:
                assert (await each.post(INFER, json=TEXT)).status_code == status
