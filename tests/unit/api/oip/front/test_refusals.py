"""A refusal that the front composes is, byte for byte, the answer that Python would give."""

from __future__ import annotations

import json
import re

import pytest

from service.api.oip.front.exchange import head_of_answer
from service.api.oip.front.refusals import refusals
from service.api.problems import problem_response
from service.core.errors import DeadlinePassed, OctetError
from service.native import Slot
from service.workers.inference import queue_full
from tests.support.native_front import PATH, full, post

_DEFAULTS = [(b"date", b""), (b"x-server", b"one")]


@pytest.mark.parametrize(("kind", "error"), [("queue_full", queue_full(12.2)), ("late", DeadlinePassed())])
def test_a_template_whose_slots_are_filled_is_the_answer(kind: str, error: OctetError) -> None:
    path = "/v2/models/a%C3%BC/infer"
    response = problem_response(error, {"path": path, "octet.request_id": "mine"})
    headers = [*_DEFAULTS, *response.raw_headers, (b"x-request-id", b"mine")]
    status, answer = refusals(path, _DEFAULTS)[kind]
    values = {Slot.REQUEST_ID: b"mine", Slot.RETRY_AFTER: b"13", Slot.DATE: b""}
    values[Slot.CONTENT_LENGTH] = str(len(response.body)).encode()
    for slot, value in values.items():
        answer = answer.replace(slot.value, value)
    assert (status, answer) == (
        response.status_code,
        head_of_answer(response.status_code, headers) + bytes(response.body),
    )


def test_the_front_fills_the_slots() -> None:
    serving, _ = full()
    try:
        for kind, template in refusals(PATH, _DEFAULTS).items():
            serving.model.entry.refuse_with(kind, *template)
        client = serving.client()
        client.sendall(post(bytes(100), "X-Request-Id: mine"))
        head, _, body = client.recv(1 << 16).partition(b"\r\n\r\n")
        response = problem_response(queue_full(0), {"path": PATH, "octet.request_id": "mine"})
        assert body == response.body
        assert json.loads(body)["request_id"] == "mine"
        date = re.search(rb"date: (.+? GMT)", head)
        assert date
        headers = [(b"date", date[1]), _DEFAULTS[1], *response.raw_headers, (b"x-request-id", b"mine")]
        assert head + b"\r\n\r\n" == head_of_answer(429, headers)
    finally:
        serving.close()
