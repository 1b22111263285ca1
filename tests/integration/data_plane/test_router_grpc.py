"""A router's data plane forwards requests over gRPC to the data planes of workers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from tests.support import runners
from tests.support.gates import Gate
from tests.support.routed import Cluster, cluster, vector
from tests.support.waiting import GIVE_UP_S, eventually


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as made:
        yield made


@pytest.fixture
def client(routed: Cluster) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(routed.grpc) as opened:
        yield opened


def tensor(values: np.ndarray[Any, Any], name: str = "x") -> list[triton.InferInput]:
    sent = triton.InferInput(name, list(values.shape), "INT32" if values.dtype == np.int32 else "UINT8")
    sent.set_data_from_numpy(values)
    return [sent]


def test_a_message_is_forwarded_unchanged(routed: Cluster, client: triton.InferenceServerClient) -> None:
    worker = routed.worker({"echo": runners.identity("UINT8", 1, 16)})
    routed.tell()
    for seed in range(5):
        answer = client.infer("echo", tensor(vector(seed)), request_id=f"mine-{seed}")
        assert answer.as_numpy("y").tolist() == vector(seed).tolist()
        assert answer.get_response().id == f"mine-{seed}"
    assert routed.forwards() == {worker.id: {"forwarded": 5, "retried": 0, "failed": 0}}
    stats = client.get_inference_statistics("echo").model_stats[0]
    assert stats.inference_stats.success.count == 5


def test_large_messages_are_forwarded_completely(routed: Cluster, client: triton.InferenceServerClient) -> None:
    shape = (1, 1_500_000)
    routed.worker({"large": runners.identity("UINT8", *shape)})
    routed.tell()
    values = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    for coding in (None, "gzip"):
        answer = client.infer("large", tensor(values), compression_algorithm=coding)
        assert np.array_equal(answer.as_numpy("y"), values)


def test_errors_keep_their_statuses(routed: Cluster, client: triton.InferenceServerClient) -> None:
    routed.worker({"echo": runners.identity("UINT8", 1, 16)})
    routed.tell()
    with pytest.raises(InferenceServerException, match="the model has no input 'z'") as caught:
        client.infer("echo", tensor(vector(1), "z"))
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    with pytest.raises(InferenceServerException) as caught:
        client.infer("cats", tensor(vector(1)))
    assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_the_metadata_of_a_model_comes_from_a_worker(routed: Cluster, client: triton.InferenceServerClient) -> None:
    routed.worker({"echo": runners.identity("UINT8", 1, 16)})
    routed.tell()
    assert list(client.get_model_metadata("echo").inputs[0].shape) == [1, 16]
    assert client.get_model_config("echo").config.backend == "octet"
    assert client.is_model_ready("echo", "1")
    assert not client.is_model_ready("cats")


def test_messages_of_a_stream_are_answered_in_order(routed: Cluster, client: triton.InferenceServerClient) -> None:
    for _ in range(2):
        routed.worker({"echo": runners.identity("UINT8", 1, 16)})
    routed.tell()
    answers: list[Any] = []
    client.start_stream(lambda result, error: answers.append((result, error)))
    for seed in range(20):
        client.async_stream_infer("echo", tensor(vector(seed), "z" if seed == 7 else "x"))
    eventually(lambda: len(answers) == 20)
    client.stop_stream()
    assert "the model has no input 'z'" in str(answers[7][1])
    for seed, (result, _) in enumerate(answers):
        assert seed == 7 or result.as_numpy("y").tolist() == vector(seed).tolist()


def test_a_deadline_is_enforced(routed: Cluster, client: triton.InferenceServerClient) -> None:
    gate = Gate()
    routed.worker({"held": runners.held(gate, "UINT8", 1, 16)})
    routed.tell()
    with pytest.raises(InferenceServerException) as caught:
        client.infer("held", tensor(np.full((1, 16), 7, np.uint8)), client_timeout=0.3)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    gate.open()


def test_a_killed_worker_loses_no_request(routed: Cluster) -> None:
    doomed, _ = (routed.worker({"echo": runners.identity("UINT8", 1, 16)}) for _ in range(2))
    routed.tell()
    outcomes: Counter[str] = Counter()
    is_over = threading.Event()

    def ask(number: int) -> None:
        with triton.InferenceServerClient(routed.grpc) as client:
            seed = number
            while not is_over.is_set():
                seed += 4
                try:
                    answer = client.infer("echo", tensor(vector(seed))).as_numpy("y").tolist()
                    outcomes["right" if answer == vector(seed).tolist() else "wrong"] += 1
                except InferenceServerException as error:
                    outcomes[str(error)] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: outcomes["right"] > 50)
    doomed.kill()
    at_the_kill = outcomes["right"]
    eventually(lambda: outcomes["right"] > at_the_kill + 100)
    is_over.set()
    for thread in threads:
        thread.join(GIVE_UP_S)
    assert set(outcomes) == {"right"}
