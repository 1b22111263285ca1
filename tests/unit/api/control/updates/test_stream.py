"""Tests of the stream of changes."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator

import pytest

from service.api.control.updates import stream
from service.api.control.updates.changes import State
from service.core.errors import DatabaseUnreachable, OctetError
from tests.support.control_plane import ControlPlane


def events_of(plane: ControlPlane, states: list[State | OctetError], count: int) -> list[tuple[str, dict[str, object]]]:
    """Returns the first events of a stream that takes these states, one after the other."""
    taken = iter(states)

    async def take() -> State:
        state = next(taken)
        if isinstance(state, OctetError):
            raise state
        return state

    async def first() -> list[bytes]:
        events = stream.stream_of(plane.services, take, {"release": "1"})
        return [await anext(events) for _ in range(count)]

    lines = [event.decode().strip().split("\n") for event in asyncio.run(first())]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "EVERY_S", 0.01)
    monkeypatch.setattr(stream, "_LOOK_S", 0.005)


def test_the_state_is_followed_by_its_changes(plane: ControlPlane) -> None:
    before, after = {"models": {"a": 1}}, {"models": {"a": 1, "b": 2}}
    hello, first, second = events_of(plane, [before, before, after], 3)
    assert hello == ("hello", {"release": "1"})
    assert (first[0], first[1]["models"]) == ("change", {"set": {"a": 1}})
    assert second[1]["models"] == {"set": {"b": 2}}


def test_a_client_may_ask_for_the_state_only(plane: ControlPlane) -> None:
    answer = plane.client.get("/api/v1/updates", params={"once": "true"}, headers={"accept-encoding": "identity"})
    names = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert names == ["hello", "change"]


def test_an_error_ends_the_stream(plane: ControlPlane) -> None:
    *_, problem = events_of(plane, [DatabaseUnreachable("the database is away")], 2)
    assert problem == ("problem", {"detail": "the database is away", "hint": None})


def test_every_compressed_event_can_be_read_at_once() -> None:
    async def source() -> AsyncIterator[bytes]:
        for text in (b"one", b"two"):
            yield text

    async def read() -> list[bytes]:
        reader = zlib.decompressobj(wbits=31)
        return [reader.decompress(chunk) async for chunk in stream.compressed(source())]

    assert asyncio.run(read()) == [b"one", b"two", b""]
