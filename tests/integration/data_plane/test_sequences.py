"""A model that keeps state: it adds up the values of all requests of a sequence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from tests.support.plane_models import LENGTH, bare_plane, counting
from tests.support.plane_process import PlaneProcess
from tests.support.waiting import GIVE_UP_S

MOST, IDLE_S = 8, 4.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("sequences")
    rules = {"most_sequences": MOST, "sequence_idle_s": IDLE_S, "queue_size": 1000, "instances": 2}
    with bare_plane(folder, [counting(folder, 1, **rules)]) as process:
        yield process


@pytest.fixture
def client(served: PlaneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=GIVE_UP_S) as opened:
        yield opened


def ask(client: httpx.Client, value: int, **parameters: Any) -> httpx.Response:
    entry = {"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": [value] * LENGTH}
    return client.post("/v2/models/counting/infer", json={"inputs": [entry], "parameters": parameters})


def total(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    first: int = answer.json()["outputs"][0]["data"][0]
    return first


def start(client: httpx.Client, id_: int | str, value: int) -> int:
    return total(ask(client, value, sequence_id=id_, sequence_start=True))


def end(client: httpx.Client, id_: int | str) -> int:
    return total(ask(client, 0, sequence_id=id_, sequence_end=True))


def test_sequences_are_distinguished_by_number_and_name(client: httpx.Client) -> None:
    ids: list[int | str] = [7, "7", "left"]
    assert [start(client, id_, index) for index, id_ in enumerate(ids)] == [0, 1, 2]
    assert [total(ask(client, 10, sequence_id=id_)) for id_ in ids] == [10, 11, 12]
    assert [end(client, id_) for id_ in ids] == [10, 11, 12]


def test_a_request_that_starts_and_ends_is_independent(client: httpx.Client) -> None:
    for value in (3, 4):
        assert total(ask(client, value, sequence_id=1, sequence_start=True, sequence_end=True)) == value
    assert ask(client, 1, sequence_id=1).status_code == 409


def test_starting_again_resets_the_state(client: httpx.Client) -> None:
    assert start(client, 2, 5) == 5
    assert start(client, 2, 6) == 6
    assert end(client, 2) == 6


@pytest.mark.parametrize("parameters", [{}, {"sequence_id": 0}, {"sequence_id": ""}, {"sequence_start": True}])
def test_a_request_without_a_sequence_is_rejected_with_an_explanation(
    client: httpx.Client, parameters: dict[str, Any]
) -> None:
    answer = ask(client, 1, **parameters)
    assert answer.status_code == 400
    assert "sequence_id" in answer.json()["hint"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"sequence_id": -1},
        {"sequence_id": 1.5},
        {"sequence_id": True},
        {"sequence_id": "x" * 129},
        {"sequence_id": 1, "sequence_start": 1},
    ],
)
def test_an_invalid_sequence_is_rejected(client: httpx.Client, parameters: dict[str, Any]) -> None:
    answer = ask(client, 1, **parameters)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_an_unknown_sequence_is_reported(client: httpx.Client, served: PlaneProcess) -> None:
    answer = ask(client, 1, sequence_id=99)
    assert (answer.status_code, answer.json()["code"]) == (409, "unknown_sequence")
    assert "the sequence 99 is not active" in answer.json()["detail"]
    with (
        triton.InferenceServerClient(served.grpc) as other,
        pytest.raises(InferenceServerException, match="the sequence 'mine' is not active"),
    ):
        other.infer("counting", [_tensor(1)], sequence_id="mine")


def test_a_sequence_may_continue_over_the_other_protocol(client: httpx.Client, served: PlaneProcess) -> None:
    assert start(client, 5, 1) == 1
    with triton.InferenceServerClient(served.grpc) as other:
        answer = other.infer("counting", [_tensor(2)], sequence_id=5, sequence_end=True)
    assert answer.as_numpy("out0")[0, 0] == 3


def _tensor(value: int) -> Any:
    tensor = triton.InferInput("in0", [1, LENGTH], "INT32")
    tensor.set_data_from_numpy(np.full((1, LENGTH), value, np.int32))
    return tensor


def test_a_rejected_request_leaves_its_sequence_unchanged(client: httpx.Client) -> None:
    assert start(client, 6, 1) == 1
    entry = {"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": ["x"]}
    body = {"inputs": [entry], "parameters": {"sequence_id": 6}}
    assert client.post("/v2/models/counting/infer", json=body).status_code == 400
    assert end(client, 6) == 1


def test_the_number_of_sequences_is_limited_until_some_are_idle(client: httpx.Client) -> None:
    for id_ in range(1, MOST + 1):
        start(client, id_, 1)
    answer = ask(client, 1, sequence_id=MOST + 1, sequence_start=True)
    assert (answer.status_code, answer.json()["code"]) == (429, "queue_full")
    assert f"{MOST} sequences of the model are active" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) >= 1
    time.sleep(IDLE_S * 1.2)
    assert start(client, MOST + 1, 4) == 4
    assert ask(client, 1, sequence_id=1).status_code == 409  # this sequence had no requests in the meantime
    assert end(client, MOST + 1) == 4


def test_requests_of_one_sequence_run_one_after_another(client: httpx.Client, served: PlaneProcess) -> None:
    """However many requests arrive at once, none is lost and none is counted twice."""
    start(client, 3, 0)
    with ThreadPoolExecutor(8) as pool, httpx.Client(base_url=served.url, timeout=GIVE_UP_S) as shared:
        totals = sorted(pool.map(lambda _: total(ask(shared, 1, sequence_id=3)), range(64)))
    assert totals == list(range(1, 65))
    assert end(client, 3) == 64


def test_requests_that_wait_for_a_sequence_that_ends_get_an_error(client: httpx.Client, served: PlaneProcess) -> None:
    start(client, 4, 1)
    with ThreadPoolExecutor(8) as pool, httpx.Client(base_url=served.url, timeout=GIVE_UP_S) as shared:
        answers = list(pool.map(lambda _: ask(shared, 0, sequence_id=4, sequence_end=True), range(32)))
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) == 1
    assert statuses.count(409) == 31
