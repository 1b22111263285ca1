"""Sequences through a router. A worker keeps the state of each sequence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton

from tests.support import runners
from tests.support.routed import Cluster, WorkerProcess, cluster, request
from tests.support.waiting import GIVE_UP_S

ONE = np.ones((1,), np.int32)


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as made:
        for _ in range(3):
            made.worker({"tally": runners.tally()})
        made.tell()
        yield made


def step(routed: Cluster, sequence: int | str, coding: str = "", **parameters: Any) -> httpx.Response:
    body = request(ONE, parameters={"sequence_id": sequence, **parameters})
    headers = {}
    if coding:
        body, headers = gzip.compress(body), {"content-encoding": "gzip"}
    return httpx.post(f"{routed.url}/v2/models/tally/infer", content=body, headers=headers, timeout=GIVE_UP_S)


def total(answer: httpx.Response) -> int:
    value: int = answer.json()["outputs"][0]["data"][0]
    return value


def homes(routed: Cluster) -> dict[str, int]:
    return {name: each["forwarded"] for name, each in routed.forwards().items()}


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_a_sequence_stays_on_its_worker(routed: Cluster, coding: str) -> None:
    sequences: list[int | str] = [*range(1, 7), *(f"s{number}" for number in range(6))]
    for sequence in sequences:
        assert total(step(routed, sequence, coding, sequence_start=True)) == 101
    for expected in (102, 103):
        for sequence in sequences:
            assert total(step(routed, sequence, coding)) == expected
    assert len(homes(routed)) == 3  # each worker has some of the sequences


def test_a_sequence_name_may_have_escapes(routed: Cluster) -> None:
    for sequence in range(1, 9):
        assert total(step(routed, sequence, sequence_start=True)) == 101
        entry = {"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}
        text = json.dumps({"inputs": [entry], "parameters": {"sequence_id": sequence}})
        body = text.replace("sequence_id", "sequ\\u0065nce_id")
        assert total(httpx.post(f"{routed.url}/v2/models/tally/infer", content=body)) == 102


def test_messages_and_json_of_a_sequence_go_to_the_same_worker(routed: Cluster) -> None:
    sent = triton.InferInput("x", [1], "INT32")
    sent.set_data_from_numpy(ONE)
    with triton.InferenceServerClient(routed.grpc) as client:
        for sequence in range(1, 9):
            assert total(step(routed, sequence, sequence_start=True)) == 101
            assert client.infer("tally", [sent], sequence_id=sequence).as_numpy("y").tolist() == [102]


def test_if_a_worker_leaves_only_its_sequences_move(routed: Cluster) -> None:
    for sequence in range(1, 13):
        assert total(step(routed, sequence, sequence_start=True)) == 101
    gone: WorkerProcess = routed.workers.pop()
    had = homes(routed)[gone.id]
    gone.kill()
    routed.tell()
    answers = [step(routed, sequence) for sequence in range(1, 13)]
    assert [each.json()["code"] for each in answers if each.status_code != 200] == ["unknown_sequence"] * had
    assert {total(each) for each in answers if each.status_code == 200} == {102}


def test_a_step_is_not_sent_twice(routed: Cluster) -> None:
    for sequence in range(1, 13):
        assert total(step(routed, sequence, sequence_start=True)) == 101
    gone = routed.workers[0]
    gone.kill()  # the router is not informed of this
    answers = [step(routed, sequence) for sequence in range(1, 13)]
    codes = {each.json()["code"] for each in answers if each.status_code != 200}
    assert codes <= {"restarting", "unknown_sequence"}
    assert {total(each) for each in answers if each.status_code == 200} == {102}


def test_a_step_without_a_sequence_is_rejected_if_the_model_keeps_state(routed: Cluster) -> None:
    answer = httpx.post(f"{routed.url}/v2/models/tally/infer", content=request(ONE))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
