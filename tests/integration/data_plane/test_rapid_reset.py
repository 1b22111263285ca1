"""Streams are opened and reset at once, from many addresses. Only these addresses are affected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.core.settings import Settings
from service.workers.data_plane import orders
from service.workers.data_plane.frames import frame as order_frame
from tests.support.http2_frames import CANCEL, END_HEADERS, GOAWAY, HEADERS, RST_STREAM, Peer, block, frame, head
from tests.support.plane_process import ControlledPlane

ATTACKERS = [f"127.0.2.{number}" for number in range(1, 41)]
BYSTANDER = "127.0.3.1"
ENHANCE_YOUR_CALM = 11
AT_ONCE = 100  # number of streams; an address may reset a thousand, so no address is refused because of its own resets
TURNS = 9


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    first = order_frame(orders.configure(Settings(data_dir=tmp_path)))
    with ControlledPlane(tmp_path, first) as plane:
        yield plane.grpc[1]


def opened_and_reset(first: int, count: int) -> bytes:
    fields = block(head("ServerMetadata"))
    return b"".join(
        frame(HEADERS, END_HEADERS, stream, fields) + frame(RST_STREAM, 0, stream, CANCEL.to_bytes(4))
        for stream in range(first, first + 2 * count, 2)
    )


def is_sent_away(attacker: Peer) -> bool:
    try:
        return any(each.type == GOAWAY and each.error == ENHANCE_YOUR_CALM for each in attacker.read_responses())
    except AssertionError:  # the server closed the connection, and the frame with the reason may have been lost
        return True


def test_forty_resetting_addresses_do_not_affect_a_bystander(port: int) -> None:
    attackers = [Peer(port, source=address) for address in ATTACKERS]
    try:
        with Peer(port, source=BYSTANDER) as bystander:
            sent_away = 0
            for turn in range(TURNS):
                for attacker in attackers:
                    attacker.send(opened_and_reset(1 + 2 * turn * AT_ONCE, AT_ONCE))
                sent_away = sum(is_sent_away(attacker) for attacker in attackers)
                bystander.send(opened_and_reset(1 + 2 * turn, 1))
                bystander.read_responses()
                if sent_away == len(attackers):
                    break
            assert sent_away > 0
            with Peer(port, source="127.0.3.2") as newcomer:
                newcomer.send(opened_and_reset(1, 1))
                newcomer.read_responses()
    finally:
        for attacker in attackers:
            attacker.socket.close()
