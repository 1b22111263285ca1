"""Tests of the control plane of a cluster's API, which loads no models itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.core.cluster.settings import Role
from service.core.cluster.worker import Worker, WorkerKind
from tests.support.control_plane import ControlPlane, control_plane, problem
from tests.support.waiting import eventually

START = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = Worker(
    "w", WorkerKind.INFERENCE, "h", 1, "aarch64", START, START, pool="arm", address="h:1", loaded=(("digits", ""),)
)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, role=Role.API, cluster_key="0123456789abcdef", worker_heartbeat_s=60) as plane:
        yield plane


def has_seen_the_worker(api: ControlPlane) -> bool:
    api.services.workers.beat(WORKER)
    return api.push(name="other").is_success


def test_by_default_a_model_is_built_for_the_best_target_of_the_workers(api: ControlPlane) -> None:
    assert "no running worker has a target" in problem(api.push(), 422, "unknown_target")["detail"]
    eventually(lambda: has_seen_the_worker(api))
    assert api.push().json()["target"] == "aarch64"
    assert api.push(target="x86-64-v3").json()["target"] == "x86-64-v3"


def test_for_all_a_model_is_built_for_every_target_of_the_workers(api: ControlPlane) -> None:
    problem(api.push(target="all"), 422, "unknown_target")
    others = [("v", "x86-64-v3"), ("w", "aarch64"), ("c", "cuda-sm_80"), ("v2", "x86-64-v3")]

    def are_seen() -> bool:
        for id, target in others:
            api.services.workers.beat(replace(WORKER, id=id, target=target, pool=id))
        submitted = api.client.post("/api/v1/models/probe/builds", json={"targets": ["all"]}).json()
        return len(submitted.get("builds", ())) == 3

    api.push(name="probe", target="x86-64-v3")
    eventually(are_seen)
    first = api.push(target="all").json()
    answer = api.client.post("/api/v1/models/digits/builds", json={"targets": ["all", "aarch64", "x86-64-v4"]})
    builds = answer.json()["builds"]
    assert [each["target"] for each in builds] == ["x86-64-v3", "aarch64", "cuda-sm_80", "x86-64-v4"]
    assert builds[0]["id"] == first["id"]
    listed = api.client.get("/api/v1/builds?model=digits").json()["builds"]
    assert sorted(each["id"] for each in listed) == sorted(each["id"] for each in builds)


def test_the_index_shows_what_workers_have_in_memory(api: ControlPlane) -> None:
    api.push(target="aarch64")
    api.succeed()
    index = api.client.post("/v2/repository/index").json()
    assert [(each["state"], each["reason"]) for each in index] == [
        ("UNAVAILABLE", "no running worker supports aarch64")
    ]
    eventually(lambda: has_seen_the_worker(api))
    states = {each["name"]: each["state"] for each in api.client.post("/v2/repository/index").json()}
    assert states["digits"] == "READY"


def test_workers_are_listed_with_their_targets_and_state(api: ControlPlane) -> None:
    api.services.workers.beat(WORKER)
    [listed] = api.client.get("/api/v1/workers").json()["workers"]
    assert (listed["pool"], listed["address"], listed["state"]) == ("arm", "h:1", "ready")
    assert listed["loaded"] == [{"model": "digits", "versions": [""]}]
