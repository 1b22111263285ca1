"""What a front passes on to Python: a queue whose descriptor wakes the event loop."""

from __future__ import annotations

import select
import socket
import time

from service.native.front import Handover, Problem
from tests.support.native_front import LIMITS, Model, Serving, post
from tests.support.waiting import GIVE_UP_S

_UNKNOWN = b"GET /somewhere HTTP/1.1\r\nHost: here\r\n\r\n"


def is_readable(serving: Serving, timeout_s: float) -> bool:
    return bool(select.select([serving.front.descriptor()], [], [], timeout_s)[0])


def test_events_are_taken_in_the_order_in_which_they_happened() -> None:
    serving = Serving(Model(), LIMITS)
    try:
        serving.client().sendall(post(b"\7" * 100))
        assert is_readable(serving, GIVE_UP_S)
        serving.client().sendall(_UNKNOWN)
        time.sleep(0.5)  # the second event cannot be seen before the first is taken; too short a wait passes, too
        events = serving.front.happened()
        if len(events) == 1:
            events += serving.events()
        assert [type(event) for event in events] == [Problem, Handover]
        for event in events:
            if isinstance(event, Handover):
                socket.socket(fileno=event.descriptor).close()
    finally:
        serving.close()


def test_the_descriptor_is_readable_until_the_events_are_taken() -> None:
    serving = Serving(Model(), LIMITS)
    try:
        serving.client().sendall(_UNKNOWN)
        assert is_readable(serving, GIVE_UP_S)
        assert is_readable(serving, 0)
        event = serving.event()
        assert isinstance(event, Handover)
        socket.socket(fileno=event.descriptor).close()
        assert not is_readable(serving, 0)
    finally:
        serving.close()


def test_a_connection_that_nobody_takes_is_closed_with_its_front() -> None:
    serving = Serving(Model(), LIMITS)
    client = serving.client()
    client.sendall(_UNKNOWN)
    assert is_readable(serving, GIVE_UP_S)
    serving.front.stop()
    serving.front.join()
    del serving.front
    assert client.recv(1) == b""
    client.close()
    serving.listener.close()
    serving.model.close()
