"""Predict requests are answered without Python; whatever is not understood there goes on with all its bytes."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from service.native.front import FIELDS, Handover, Problem
from tests.support.native_front import (
    DOCUMENT,
    HEADER,
    LARGE,
    LARGE_HEADER,
    LIMITS,
    Model,
    Serving,
    plus_one,
    post,
    read,
    seen_by_python,
)
from tests.support.waiting import GIVE_UP_S, eventually


@pytest.fixture
def serving() -> Iterator[Serving]:
    started = Serving(Model(), LIMITS)
    yield started
    started.close()


_STAGES = ("queue", "batch", "infer", "total")


def test_a_prediction_is_answered_without_python(serving: Serving) -> None:
    tensors = bytes(range(100))
    client = serving.client()
    client.sendall(post(tensors, "X-Request-Id: mine"))
    status, headers, body = read(client)
    assert (status, body) == (200, plus_one(tensors))
    assert headers["inference-header-content-length"] == str(len(DOCUMENT))
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-request-id"] == "mine"
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["date"])
    timing = re.fullmatch(
        r"queue;dur=(\S+), batch;dur=(\S+), infer;dur=(\S+), total;dur=(\S+)", headers["server-timing"]
    )
    assert timing is not None
    queue, batch, infer, total = map(float, timing.groups())
    assert queue + batch + infer <= total + 0.01


def test_who_names_no_request_gets_a_name(serving: Serving) -> None:
    client = serving.client()
    names = []
    for header in ("Accept: */*", "X-Request-Id: a b"):
        client.sendall(post(bytes(100), header))
        names.append(read(client)[1]["x-request-id"])
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)
    assert len(set(names)) == 2


def test_a_large_body_in_pieces(serving: Serving) -> None:
    tensors = np.arange(LARGE, dtype=np.uint32).astype(np.uint8).tobytes()
    client, request = serving.client(), post(tensors, header=LARGE_HEADER)
    for begin in range(0, len(request), 70_001):
        client.sendall(request[begin : begin + 70_001])
    assert read(client)[2] == plus_one(tensors)


def test_a_reader_that_is_slow_gets_all_of_its_answer(serving: Serving) -> None:
    serving.model.learn(b"1", (1, 380_000), np.uint8)
    listener = serving.listener.getsockname()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(GIVE_UP_S)
        client.connect(listener)
        requests = 20
        sender = threading.Thread(target=client.sendall, args=(post(bytes(380_000), header=b"1") * requests,))
        sender.start()
        time.sleep(0.2)
        for _ in range(requests):
            assert read(client)[2] == plus_one(bytes(380_000))
        sender.join()


def test_tensors_of_a_body_without_an_inference_header(serving: Serving) -> None:
    serving.model.learn(b"", (1, 3), np.uint8)
    client = serving.client()
    client.sendall(post(b"abc", "Accept: application/octet-stream", header=b""))
    assert read(client)[2] == DOCUMENT + b"bcd"
    client.sendall(post(b"abc", header=b""))  # who wants to read the answer as JSON
    assert isinstance(serving.event(), Handover)


_OTHERS = {
    "another method": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "another path": post(bytes(100), path="/v2/models/other/infer"),
    "unknown header": post(bytes(100), header=HEADER.replace(b"x", b"z")),
    "header of another length": post(bytes(100), header=b"{}"),
    "other tensors": post(bytes(101)),
    "keys": post(bytes(100), "Authorization: Bearer x"),
    "trace": post(bytes(100), "traceparent: 00-00000000000000000000000000000001-0000000000000001-00"),
    "timeout": post(bytes(100), "Octet-Timeout-Ms: 5"),
    "affinity": post(bytes(100), "Octet-Affinity: a"),
    "coding": post(bytes(100), "Content-Encoding: identity"),
    "picture": post(bytes(100), "Content-Type: Image/png"),
    "compressed answer": post(bytes(LARGE), "Accept-Encoding: br, GZip;q=1", header=LARGE_HEADER),
    "close": post(bytes(100), "Connection: close"),
    "twice": post(bytes(100), "a: 1", "A: 2"),
    "folded": post(bytes(100), " folded"),
    "line feeds": post(bytes(100)).replace(b"\r\n", b"\n"),
    "pipelined garbage": b"\r\n" + post(bytes(100)),
}


@pytest.mark.parametrize("request_bytes", _OTHERS.values(), ids=_OTHERS)
def test_what_is_not_understood_is_handed_over_whole(serving: Serving, request_bytes: bytes) -> None:
    client = serving.client()
    client.sendall(request_bytes)
    event = serving.event()
    assert isinstance(event, Handover)
    assert seen_by_python(event, request_bytes) == request_bytes
    assert not serving.front.takes(request_bytes)


@pytest.mark.parametrize(
    ("dtype", "odd"), [(np.float32, np.float32(np.nan)), (np.float32, -np.float32(np.inf)), (np.bool_, np.uint8(2))]
)
def test_a_tensor_that_holds_what_its_type_does_not_is_pythons_to_refuse(
    serving: Serving, dtype: Any, odd: Any
) -> None:
    serving.model.learn(b"odd", (1, 10), dtype)
    sound = np.ones(10, dtype).tobytes()
    client = serving.client()
    client.sendall(post(sound, header=b"odd"))
    assert read(client)[2] == DOCUMENT + sound
    request = post(sound[: -odd.nbytes] + odd.tobytes(), header=b"odd")
    client.sendall(request)
    event = serving.event()
    assert isinstance(event, Handover)
    assert seen_by_python(event, request) == request
    assert serving.model.queue.admitted() == 0


def test_python_gives_a_connection_back(serving: Serving) -> None:
    client = serving.client()
    client.sendall(post(bytes(100), header=b"new"))
    event = serving.event()
    assert isinstance(event, Handover)
    serving.model.learn(b"new", (1, 100), np.uint8)
    head, _, _ = event.received.partition(b"\r\n\r\n")
    assert serving.front.takes(event.received)
    assert serving.front.takes(head + b"\r\n\r\n")
    serving.front.adopt(event.descriptor, event.received)
    assert read(client)[2] == plus_one(bytes(100))


def test_a_model_that_is_gone_is_not_asked(serving: Serving) -> None:
    client = serving.client()
    client.sendall(post(bytes(100)))
    read(client)
    serving.front.route({})
    client.sendall(post(bytes(100)))
    assert isinstance(serving.event(), Handover)
    assert serving.model.queue.admitted() == 0


def test_a_template_may_be_forgotten_while_it_is_used(serving: Serving) -> None:
    client, request = serving.client(), post(bytes(100))
    client.sendall(request[:-1])
    eventually(lambda: serving.model.queue.admitted() == 1)
    for number in range(70):
        serving.model.learn(b"%d" % number, (1, 100), np.uint8)
    client.sendall(request[-1:])
    assert read(client)[0] == 200


def test_a_call_that_fails_is_pythons_to_tell(serving: Serving) -> None:
    client = serving.client()
    client.sendall(post(b"\7" * 100))
    event = serving.event()
    assert isinstance(event, Problem)
    assert event.kind == "failed"
    assert event.message == "ValueError: seven"
    serving.front.answer(event.exchange, b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
    assert read(client)[0] == 500
    client.sendall(post(bytes(100)))
    assert read(client)[0] == 200


def test_an_answer_that_nobody_waits_for_any_more_is_dropped(serving: Serving) -> None:
    client = serving.client()
    client.sendall(post(b"\7" * 100))
    event = serving.event()
    assert isinstance(event, Problem)
    client.close()
    eventually(lambda: serving.front.counts()[0] == 0)
    other = serving.client()  # has the same descriptor
    serving.front.answer(event.exchange, b"never seen")
    other.sendall(post(bytes(100)))
    assert read(other)[0] == 200


def test_records_say_when_what_was_done(serving: Serving) -> None:
    client = serving.client()
    for _ in range(3):
        client.sendall(post(bytes(100)))
        read(client)
    table, lost = serving.front.records()
    assert table.shape == (3, len(FIELDS))
    assert lost == 0
    of = dict(zip(FIELDS, table.T, strict=True))
    assert of["entry"].tolist() == [7] * 3
    assert of["samples"].tolist() == [1] * 3
    order = ("began_s", "arrived_s", "prepared_s", "submitted_s", "taken_s", "computed_s", "ran_s", "ended_s")
    assert (np.diff([of[name] for name in order], axis=0) >= 0).all()
    assert serving.front.records()[0].shape == (0, len(FIELDS))
