"""Tests of sending one request to every pool. The workers are stand-ins with fixed answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.cluster.settings import Role
from service.core.cluster.worker import WorkerState
from tests.support.control_plane import HOST_TARGET, ControlPlane, control_plane, problem
from tests.support.stand_in_workers import worker

KEY = "0123456789abcdef"
START = datetime(2026, 1, 1, tzinfo=UTC)
URL = "/api/v1/models/digits/compare"


def binary(*tensors: np.ndarray[Any, Any]) -> tuple[bytes, dict[str, str]]:
    datatypes = {"int8": "INT8", "float32": "FP32"}
    outputs = [
        {
            "name": f"y{number}",
            "datatype": datatypes[each.dtype.name],
            "shape": list(each.shape),
            "parameters": {"binary_data_size": each.nbytes},
        }
        for number, each in enumerate(tensors)
    ]
    header = json.dumps({"outputs": outputs}).encode()
    return header + b"".join(each.tobytes() for each in tensors), {"Inference-Header-Content-Length": str(len(header))}


def in_json(data: list[float]) -> bytes:
    return json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [len(data)], "data": data}]}).encode()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, role=Role.API, cluster_key=KEY, worker_heartbeat_s=60) as plane:
        plane.push(target=HOST_TARGET)
        yield plane


def compare(api: ControlPlane, **more: Any) -> dict[str, Any]:
    answer = api.client.post(URL, **{"content": b"the request", **more})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_each_pool_gets_one_request_with_the_clusters_key(api: ControlPlane) -> None:
    answer, headers = binary(np.array([1, 2], np.int8))
    with worker(api, "a", answer, headers=headers) as a, worker(api, "b", answer, headers=headers) as b:
        comparison = compare(api, headers={"content-type": "image/png", "authorization": "Bearer x"})
        assert (comparison["equal"], comparison["reference"]) == (True, "a")
        assert [(each["pool"], each["problem"], each["differences"]) for each in comparison["answers"]] == [
            ("a", None, []),
            ("b", None, []),
        ]
        for stand_in in (a, b):
            [(path, given, body)] = stand_in.asked
            assert (path, body) == ("/v2/models/digits/versions/1/infer", b"the request")
            assert (given["octet-cluster-key"], given["content-type"]) == (KEY, "image/png")
            assert "authorization" not in given


def test_differences_are_located(api: ControlPlane) -> None:
    same = np.arange(3, dtype=np.int8)
    one, other = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    other[0, 1], other[1, 2] = -0.0, 1.0  # -0.0 equals 0.0, but its bytes differ
    (first, of_first), (second, of_second) = binary(same, one), binary(same, other)
    with worker(api, "a", first, headers=of_first), worker(api, "b", second, headers=of_second):
        comparison = compare(api)
    assert comparison["equal"] is False
    assert comparison["answers"][1]["differences"] == [{"output": "y1", "different": 2, "first": 1}]


def test_answers_in_json_are_compared_by_their_text(api: ControlPlane) -> None:
    with worker(api, "a", in_json([0.0, float("nan"), 1.5])), worker(api, "b", in_json([-0.0, float("nan"), 1.5])):
        assert compare(api)["answers"][1]["differences"] == [{"output": "y", "different": 1, "first": 0}]


@pytest.mark.parametrize(
    "other", [(np.zeros((1, 3), np.int8),), (np.zeros(3, np.float32),), (), 2 * (np.zeros(3, np.int8),)]
)
def test_another_shape_or_type_or_number_of_outputs(api: ControlPlane, other: Any) -> None:
    (first, of_first), (second, of_second) = binary(np.zeros(3, np.int8)), binary(*other)
    with worker(api, "a", first, headers=of_first), worker(api, "b", second, headers=of_second):
        [different] = compare(api)["answers"][1]["differences"]
    assert (different["different"], different["first"]) == (None, None)


@pytest.mark.parametrize(
    ("status", "answer", "headers", "why"),
    [
        (503, b'{"detail": "it is not built"}', {}, "it is not built"),
        (200, b"no JSON", {}, "does not conform to the Open Inference Protocol"),
        (200, b"[]", {}, "does not conform to the Open Inference Protocol"),
        (500, b"{}", {}, "does not conform to the Open Inference Protocol"),
        (200, binary(np.zeros(3, np.int8))[0][:-1], binary(np.zeros(3, np.int8))[1], "does not conform to the Open"),
        (200, (2 << 20) * b" ", {}, "more than 1048576 bytes"),
    ],
)
def test_a_pool_that_does_not_answer_is_not_a_difference(
    tmp_path: Path, status: int, answer: bytes, headers: dict[str, str], why: str
) -> None:
    settings = {"cluster_key": KEY, "worker_heartbeat_s": 60, "max_predict_bytes": 1 << 20}
    good, of_good = binary(np.zeros(3, np.int8))
    with control_plane(tmp_path, role=Role.API, **settings) as api:
        api.push(target=HOST_TARGET)
        with worker(api, "a", answer, status, headers), worker(api, "b", good, headers=of_good):
            comparison = compare(api)
    assert (comparison["equal"], comparison["reference"]) == (None, "b")
    assert why in comparison["answers"][0]["problem"]
    assert comparison["answers"][0]["differences"] == []


def test_a_missing_worker(api: ControlPlane) -> None:
    with worker(api, "a", b"") as stand_in:
        pass
    comparison = compare(api)
    assert (comparison["equal"], comparison["reference"]) == (None, None)
    assert f"it cannot be reached at {stand_in.address}" in comparison["answers"][0]["problem"]


def test_a_ready_worker_with_the_version_answers_for_its_pool(api: ControlPlane) -> None:
    answer, headers = binary(np.zeros(3, np.int8))
    loaded: Any = {"loaded": (("digits", "1"),)}
    with (
        worker(api, "a", answer, headers=headers) as cold,
        worker(api, "a", answer, headers=headers, **loaded) as warm,
        worker(api, "a", answer, headers=headers, state=WorkerState.DRAINING, **loaded) as ending,
    ):
        compare(api)
        assert [len(each.asked) for each in (cold, warm, ending)] == [0, 1, 0]


def test_without_workers(api: ControlPlane) -> None:
    problem(api.client.post(URL, content=b"x"), 503, "not_ready")


def test_a_single_server_has_no_pools(plane: ControlPlane) -> None:
    plane.push()
    problem(plane.client.post(URL, content=b"x"), 422, "unsupported")


def test_a_body_that_is_too_large(api: ControlPlane) -> None:
    most_bytes = api.services.settings.max_predict_bytes
    problem(api.client.post(URL, content=(most_bytes + 1) * b"x"), 413, "too_large")
