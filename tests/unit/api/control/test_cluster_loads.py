"""Tests of explicit loads and unloads through the API of a cluster whose workers are stand-ins, and on such a worker
itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from service.core.cluster.settings import Role
from service.core.cluster.worker import WorkerState
from service.core.settings import Auth
from tests.support.control_plane import HOST_TARGET, ControlPlane, control_plane, problem
from tests.support.stand_in_workers import worker

KEY = "0123456789abcdef"
PATH = "/v2/repository/models/digits"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, role=Role.API, cluster_key=KEY, worker_heartbeat_s=60) as plane:
        plane.push(target=HOST_TARGET)
        plane.succeed()
        yield plane


@pytest.fixture
def its_worker(tmp_path: Path) -> Iterator[ControlPlane]:
    """A worker that requires a key from clients other than its API."""
    settings = {"target": HOST_TARGET, "cluster_key": KEY, "auth": Auth.ON}
    with control_plane(tmp_path, role=Role.WORKER, **settings) as plane:
        yield plane


def test_a_load_goes_to_the_workers_of_the_pools_that_can_serve_the_model(api: ControlPlane) -> None:
    with ExitStack() as stack:
        able = [stack.enter_context(worker(api, pool, b"{}")) for pool in ("a", "a", "b")]
        others = [
            stack.enter_context(worker(api, "arm", b"{}", target="aarch64")),
            stack.enter_context(worker(api, "a", b"{}", state=WorkerState.DRAINING)),
        ]
        answer = api.client.post(f"{PATH}/load", json={})
        assert (answer.status_code, answer.json()) == (200, {"name": "digits", "load": True})
    for each in able:
        [(path, headers, _)] = each.asked
        assert (path, headers["octet-cluster-key"]) == (f"{PATH}/load", KEY)
    assert [each.asked for each in others] == [[], []]
    assert [(each["action"], each["model"]) for each in api.services.audit.last(1)] == [("load", "digits")]


def test_an_unload_goes_to_all_workers(api: ControlPlane) -> None:
    with worker(api, "a", b"{}") as a, worker(api, "arm", b"{}", target="aarch64") as arm:
        answer = api.client.post(f"{PATH}/unload", json={})
        assert (answer.status_code, answer.json()) == (200, {"name": "digits", "unload": True})
        assert [path for each in (a, arm) for path, _, _ in each.asked] == [f"{PATH}/unload"] * 2


def test_workers_that_fail_to_load_are_named_and_the_others_load(api: ControlPlane) -> None:
    refusal = json.dumps({"detail": "there is no memory"}).encode()
    with worker(api, "a", b"{}") as a, worker(api, "b", refusal, status=503), worker(api, "c", b"?", status=500) as c:
        detail = problem(api.client.post(f"{PATH}/load", json={}), 503, "not_ready")["detail"]
        assert len(a.asked) == 1
    assert "2 of 3 workers did not load model 'digits'" in detail
    assert "of pool b: there is no memory" in detail
    assert f"w{c.address} of pool c: it answered 500" in detail


def test_a_worker_that_cannot_be_reached_is_named(api: ControlPlane) -> None:
    with worker(api, "a", b"{}") as gone:
        pass
    detail = problem(api.client.post(f"{PATH}/unload", json={}), 503, "not_ready")["detail"]
    assert f"it cannot be reached at {gone.address}" in detail


@pytest.mark.parametrize("action", ["load", "unload"])
def test_a_missing_model_or_worker(api: ControlPlane, action: str) -> None:
    problem(api.client.post(f"/v2/repository/models/unknown/{action}", json={}), 404, "not_found")
    assert "running" in problem(api.client.post(f"{PATH}/{action}", json={}), 503, "not_ready")["detail"]


def from_api(plane: ControlPlane, path: str, key: str = KEY) -> httpx.Response:
    return plane.client.post(path, json={}, headers={"octet-cluster-key": key})


def test_a_worker_loads_on_request_without_recording_it(its_worker: ControlPlane) -> None:
    its_worker.push()
    problem(its_worker.client.post(f"{PATH}/unload", json={}), 401, "unauthorized")
    problem(from_api(its_worker, f"{PATH}/unload", KEY + "x"), 401, "unauthorized")
    problem(from_api(its_worker, f"{PATH}/unload"), 404, "not_found")  # the request was admitted
    assert its_worker.services.audit.last(9) == []


def test_the_clusters_key_allows_nothing_else(its_worker: ControlPlane) -> None:
    for path in ("/api/v1/keys", "/v2/repository/index", "/api/v1/models/digits/builds"):
        problem(from_api(its_worker, path), 401, "unauthorized")


def test_an_api_does_not_accept_the_clusters_key(tmp_path: Path) -> None:
    with control_plane(tmp_path, role=Role.API, cluster_key=KEY, auth=Auth.ON) as api:
        problem(from_api(api, f"{PATH}/load"), 401, "unauthorized")
