"""Several requests are computed in one batch. Each client gets the output for its own request."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton

from tests.support.data_plane import as_binary, unpacked
from tests.support.plane_models import LENGTH, bare_plane, batched
from tests.support.plane_process import PlaneProcess
from tests.support.waiting import GIVE_UP_S

CLIENTS, REQUESTS = 8, 10


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("batches")
    with bare_plane(folder, [batched(folder, 1, (1, 2, 4), max_wait_s=100)]) as process:
        yield process


def values(client: int, request: int, samples: int = 1) -> np.ndarray[Any, np.dtype[np.int32]]:
    first = (client * REQUESTS + request) * 1000
    return np.arange(first, first + samples * LENGTH, dtype=np.int32).reshape(samples, LENGTH)


def over_http(client: httpx.Client, array: np.ndarray[Any, np.dtype[np.int32]]) -> httpx.Response:
    body, headers = as_binary({"in0": array}, {"parameters": {"binary_data_output": True}})
    return client.post("/v2/models/batched/infer", content=body, headers=headers)


def counts(served: PlaneProcess) -> tuple[int, int]:
    (stats,) = httpx.get(f"{served.url}/v2/models/batched/stats").json()["model_stats"]
    return stats["inference_count"], stats["execution_count"]


def test_every_client_gets_its_own_output_in_fewer_calls(served: PlaneProcess) -> None:
    samples, calls = counts(served)

    def http_client(number: int) -> None:
        with httpx.Client(base_url=served.url, timeout=GIVE_UP_S) as client:
            for request in range(REQUESTS):
                array = values(number, request)
                np.testing.assert_array_equal(unpacked(over_http(client, array))[1]["out0"], 2 * array)

    def grpc_client(number: int) -> None:
        with triton.InferenceServerClient(served.grpc) as client:
            for request in range(REQUESTS):
                tensor = triton.InferInput("in0", [1, LENGTH], "INT32")
                tensor.set_data_from_numpy(values(number, request))
                answer = client.infer("batched", [tensor]).as_numpy("out0")
                np.testing.assert_array_equal(answer, 2 * values(number, request))

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [http_client if number % 2 else grpc_client for number in range(CLIENTS)]
        list(pool.map(lambda numbered: numbered[1](numbered[0]), enumerate(clients)))
    more_samples, more_calls = (after - before for after, before in zip(counts(served), (samples, calls), strict=True))
    assert more_samples == CLIENTS * REQUESTS
    assert more_samples / 4 <= more_calls < more_samples


@pytest.mark.parametrize("samples", [1, 2, 3, 4])
def test_a_request_may_have_several_samples(served: PlaneProcess, samples: int) -> None:
    array = values(0, 0, samples)
    with httpx.Client(base_url=served.url) as client:
        document, arrays = unpacked(over_http(client, array))
    assert document["outputs"][0]["shape"] == [samples, LENGTH]
    np.testing.assert_array_equal(arrays["out0"], 2 * array)


def test_the_metadata_leaves_the_number_of_samples_open(served: PlaneProcess) -> None:
    described = httpx.get(f"{served.url}/v2/models/batched").json()
    with triton.InferenceServerClient(served.grpc) as client:
        message = client.get_model_metadata("batched")
    for specs in (described["inputs"], described["outputs"]):
        assert [each["shape"] for each in specs] == [[-1, LENGTH]]
    for tensors in (message.inputs, message.outputs):
        assert [list(each.shape) for each in tensors] == [[-1, LENGTH]]


@pytest.mark.parametrize("samples", [0, 5])
def test_the_error_contains_the_maximum_number_of_samples(served: PlaneProcess, samples: int) -> None:
    with httpx.Client(base_url=served.url) as client:
        refused = over_http(client, values(0, 0, samples))
    assert refused.status_code == 400
    assert refused.json()["hint"] == "it is built for batches of up to 4"


def test_a_rejected_request_does_not_affect_the_rest_of_its_batch(served: PlaneProcess) -> None:
    entry = {"name": "in0", "datatype": "INT32", "shape": [1, LENGTH]}

    def ask(index: int) -> int:
        data: list[Any] = [index] * LENGTH if index % 2 else ["x"] * LENGTH
        answer = httpx.post(
            f"{served.url}/v2/models/batched/infer", json={"inputs": [entry | {"data": data}]}, timeout=30
        )
        if index % 2:
            assert answer.json()["outputs"][0]["data"] == [2 * index] * LENGTH
        return answer.status_code

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert list(pool.map(ask, range(16))) == [400, 200] * 8
