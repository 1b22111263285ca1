"""Tests of listing targets and workers."""

from __future__ import annotations

from datetime import UTC, datetime

from service.core.cluster.worker import Worker, WorkerKind
from service.core.target import TARGETS
from tests.support.control_plane import HOST_TARGET, ControlPlane


def test_every_target_is_listed_with_missing_features_of_this_host(plane: ControlPlane) -> None:
    listed = plane.client.get("/api/v1/targets").json()
    assert (listed["architecture"], listed["cpu"]) == ("x86_64", "a CPU of the tests")
    targets = {target["name"]: target for target in listed["targets"]}
    assert list(targets) == [target.name for target in TARGETS]
    assert targets[HOST_TARGET]["runs_here"]
    assert targets[HOST_TARGET]["missing"] == []
    assert targets["aarch64"]["missing"] == ["aarch64"]
    assert targets["x86-64-v3+avxvnni"]["missing"] == ["avx_vnni"]
    assert not targets["x86-64-v3+avxvnni"]["runs_here"]


def test_one_target_is_that_of_the_host(plane: ControlPlane) -> None:
    targets = plane.client.get("/api/v1/targets").json()["targets"]
    assert [target["name"] for target in targets if target["host"]] == [HOST_TARGET]


def test_no_workers(plane: ControlPlane) -> None:
    assert plane.client.get("/api/v1/workers").json() == {"workers": []}


def test_a_worker_that_sent_a_heartbeat(plane: ControlPlane) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    worker = Worker("w", WorkerKind.COMPILE, "here", 12, HOST_TARGET, start, start, build="b")
    plane.services.workers.beat(worker)
    listed = plane.client.get("/api/v1/workers").json()["workers"]
    assert [(each["id"], each["kind"], each["pid"], each["build"]) for each in listed] == [("w", "compile", 12, "b")]
    assert datetime.fromisoformat(listed[0]["seen_at"]) > start
