"""Clients of the native front who find no place, leave, are slow, or are there when it stops."""

from __future__ import annotations

import time
from dataclasses import replace
from email.utils import parsedate_to_datetime

import numpy as np
import pytest

from service.native.front import FIELDS
from tests.support.native_front import (
    LARGE,
    LARGE_HEADER,
    LIMITS,
    Model,
    Serving,
    full,
    plus_one,
    post,
    read,
)
from tests.support.waiting import GIVE_UP_S, eventually


def test_who_finds_no_place_is_refused_before_his_body_and_the_connection_goes_on() -> None:
    serving, _ = full()
    try:
        client, request = serving.client(), post(bytes(LARGE), "X-Request-Id: r", header=LARGE_HEADER)
        client.sendall(request[:1000])
        status, headers, body = read(client)
        assert (status, body) == (429, b"queue_full r")
        assert (headers["retry-after"], "connection" in headers) == ("1", False)
        assert parsedate_to_datetime(headers["date"])
        serving.model.gate.set()
        eventually(lambda: serving.model.queue.admitted() == 0)
        client.sendall(request[1000:] + post(bytes(100)))
        assert read(client)[2] == plus_one(bytes(100))
    finally:
        serving.close()


def test_refusals_in_one_piece_are_answered_one_by_one() -> None:
    serving, _ = full()
    try:
        client = serving.client()
        client.sendall(post(bytes(100), "X-Request-Id: r") * 30)
        for _ in range(30):
            assert read(client)[::2] == (429, b"queue_full r")
        table, _ = serving.front.records()
        assert table[:, FIELDS.index("code")].tolist() == [429] * 30
    finally:
        serving.close()


def test_a_long_body_that_is_refused_ends_its_connection_after_the_answer() -> None:
    serving, _ = full(replace(LIMITS, longest_body_bytes=8 << 20))
    try:
        serving.model.learn(b"long", (1, 3 << 20), np.uint8)
        client, request = serving.client(), post(bytes(3 << 20), header=b"long")
        client.sendall(request)  # and nobody resets the connection meanwhile
        status, headers, _ = read(client)
        assert (status, headers["connection"]) == (429, "close")
        assert client.recv(1) == b""
        eventually(lambda: serving.front.counts()[0] == 2)  # though the client does not close its end
    finally:
        serving.close()


def test_who_awaits_to_be_told_sends_his_body_only_if_there_is_a_place() -> None:
    serving = Serving(Model(queue_size=1), LIMITS)
    try:
        head, body = post(bytes(100), "Expect: 100-continue").split(b"\r\n\r\n", 1)
        first = serving.client()
        first.sendall(head + b"\r\n\r\n")
        assert first.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        first.sendall(body)
        assert read(first)[0] == 200
        first.sendall(head + b"\r\n\r\n" + body)  # who did not wait is not told
        assert read(first)[0] == 200
        serving.model.gate.clear()
        for client in (first, serving.client()):
            client.sendall(post(bytes(100)))
        eventually(lambda: serving.model.queue.queued() == 1)
        refused = serving.client()
        refused.sendall(head + b"\r\n\r\n")
        status, headers, _ = read(refused)
        assert (status, headers["connection"]) == (429, "close")
        assert refused.recv(1) == b""
    finally:
        serving.close()


def test_who_leaves_the_queue_is_not_computed() -> None:
    serving, waiting = full()
    try:
        waiting.close()
        eventually(lambda: serving.model.queue.queued() == 0)
        serving.model.gate.set()
        eventually(lambda: serving.front.counts()[1] == 0)
        table, lost = serving.front.records()
        codes = table[:, FIELDS.index("code")].tolist()
        assert sorted(codes) == [200, 499]
        assert lost == 0
        assert not serving.model.entered.acquire(blocking=False)
    finally:
        serving.close()


def test_a_slow_body_lends_its_place() -> None:
    serving = Serving(Model(queue_size=1), LIMITS)
    try:
        slow, request = [serving.client() for _ in range(2)], post(bytes(100))
        for client in slow:  # one finds an instance that is idle, and one a place
            client.sendall(request[:-1])
        eventually(lambda: serving.model.queue.admitted() == 2 and serving.model.queue.waiting() == 0)
        client = serving.client()
        client.sendall(request)
        assert read(client)[0] == 200
        for client in slow:
            client.sendall(request[-1:])
            assert read(client)[0] == 200
        assert serving.model.queue.admitted() == 0
    finally:
        serving.close()


def test_who_comes_back_to_a_lent_place_and_finds_it_taken_is_refused() -> None:
    serving = Serving(Model(queue_size=1), LIMITS)
    try:
        slow, request = serving.client(), post(bytes(100))
        slow.sendall(request[:-1])
        eventually(lambda: serving.model.queue.admitted() == 1 and serving.model.queue.waiting() == 0)
        serving.model.gate.clear()
        for client in (serving.client(), serving.client()):
            client.sendall(request)
        assert serving.model.entered.acquire(timeout=GIVE_UP_S)
        eventually(lambda: serving.model.queue.queued() == 1)
        slow.sendall(request[-1:])
        assert read(slow)[0] == 429
    finally:
        serving.close()


def test_a_deadline_is_said_when_it_passes() -> None:
    serving, _ = full()
    try:
        serving.model.gate.set()
        eventually(lambda: serving.model.queue.admitted() == 0)
        assert serving.model.entered.acquire(timeout=GIVE_UP_S)
        serving.model.gate.clear()
        serving.model.learn(b"soon", (1, 100), np.uint8, timeout_s=0.1)
        first, late = serving.client(), serving.client()
        first.sendall(post(bytes(100)))
        assert serving.model.entered.acquire(timeout=GIVE_UP_S)
        began_s = time.monotonic()
        late.sendall(post(bytes(100), header=b"soon"))
        assert read(late)[0] == 504
        assert time.monotonic() - began_s >= 0.1
        assert not serving.model.gate.is_set()  # the call before it goes on
        assert serving.model.queue.queued() == 0
    finally:
        serving.close()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", b"the head of the request took too long"),
        (b"POST /v2/mod", b"the head of the request took too long"),
        (post(bytes(100)) + b"POST /v2/mod", b"the head of the request took too long"),
        (post(bytes(100))[:-1], b"the body of the request came too slowly"),
    ],
)
def test_who_is_too_slow_is_told_and_cut_off(sent: bytes, why: bytes) -> None:
    serving = Serving(Model(), replace(LIMITS, head_timeout_s=0.3, stall_timeout_s=0.3))
    try:
        client = serving.client()
        client.sendall(sent)
        if sent.startswith(post(bytes(100))):
            assert read(client)[0] == 200
        status, headers, body = read(client)
        assert (status, headers["connection"], body) == (408, "close", why)
        assert client.recv(1) == b""
        assert serving.model.queue.admitted() == 0
    finally:
        serving.close()


def test_an_idle_connection_is_closed_without_a_word() -> None:
    serving = Serving(Model(), replace(LIMITS, keep_alive_s=0.2))
    try:
        client = serving.client()
        client.sendall(post(bytes(100)))
        assert read(client)[0] == 200
        assert client.recv(1) == b""
    finally:
        serving.close()


def test_stopping_finishes_what_is_under_way() -> None:
    serving, waiting = full()
    try:
        idle = serving.client()
        eventually(lambda: list(serving.front.counts()) == [3, 2])
        serving.front.stop()
        assert idle.recv(1) == b""
        assert not serving.front.takes(post(bytes(100)))
        serving.model.gate.set()
        status, headers, _ = read(waiting)
        assert (status, headers["connection"]) == (200, "close")
        serving.front.join()
        assert list(serving.front.counts()) == [0, 0]
    finally:
        serving.close()


def test_stopping_at_once_waits_for_nobody() -> None:
    serving, waiting = full()
    try:
        serving.front.stop()
        serving.front.stop()
        serving.front.join()
        assert waiting.recv(1) == b""
        assert serving.model.queue.admitted() == 0
    finally:
        serving.close()
