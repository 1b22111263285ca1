"""Tests of the matrix of a model's builds on the pools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from service.cache import Manifest
from service.core.artifacts.artifact import ARTIFACT_TYPE, CONSTANTS_MEDIA_TYPE, LIBRARY_MEDIA_TYPE, Report
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from service.core.cluster.settings import Role
from service.core.cluster.worker import Worker, WorkerKind, WorkerState
from service.core.digest import Digest, canonical_json
from service.core.errors import UnsupportedOperator
from tests.support.control_plane import HOST_TARGET, MODEL, ControlPlane, control_plane, problem, publish

START = datetime(2026, 1, 1, tzinfo=UTC)
LOADED = (("digits", ""), ("digits", "1"), ("other", ""))
WORKER = Worker(
    "a", WorkerKind.INFERENCE, "h", 1, HOST_TARGET, START, START, pool="old", address="h:1", capacity=4, loaded=LOADED
)
ARM, VNNI = "aarch64", "x86-64-v4+vnni"
PRICES = {"old": 0.18, "arm": 0.09}
COVERAGE: dict[str, Any] = {
    "macs": 100,
    "integer_percent": 100.0,
    "kernels": {
        "layers": [{"layer": "a", "operators": "conv2d", "kernel": "conv", "symbol": "octet_conv", "macs": 100}],
        "plain": [],
        "declined": {},
        "reorders": 0,
    },
}
PROFILE: dict[str, Any] = {
    "machine": "a CPU of the tests",
    "threads": 1,
    "rounds": 5,
    "model_seconds": 0.25,
    "peak_macs_per_s": 1000.0,
    "calls": [{"symbol": "octet_conv", "seconds": 0.2}],
}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ControlPlane]:
    settings = {"cluster_key": "0123456789abcdef", "worker_heartbeat_s": 60, "pool_prices": PRICES}
    with control_plane(tmp_path, role=Role.API, **settings) as plane:
        yield plane


def rows(plane: ControlPlane, **query: Any) -> list[dict[str, Any]]:
    answer = plane.client.get("/api/v1/models/digits/matrix", params=query)
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


def only(plane: ControlPlane) -> dict[str, Any]:
    [row] = rows(plane)
    return row


def attach(plane: ControlPlane, artifact: Digest, **profile: Any) -> None:
    for report, data in ((Report.COVERAGE, COVERAGE), (Report.PROFILE, PROFILE | profile)):
        plane.services.layout.attach(artifact, report, canonical_json(data))


def test_a_single_server_is_one_pool(plane: ControlPlane) -> None:
    plane.push()
    queued = only(plane)
    assert (queued["pool"], queued["target"], queued["state"]) == ("host", HOST_TARGET, "queued")
    assert (queued["workers"], queued["loaded"], queued["artifact"]) == (1, 0, None)
    claim = plane.claim()
    assert only(plane)["state"] == "building"
    plane.services.builds.finish(claim, error=UnsupportedOperator())
    failed = only(plane)
    assert (failed["state"], failed["build"], failed["error"]) == ("failed", claim.build.id, "unsupported_operator")


def test_figures_without_a_measurement_are_missing(plane: ControlPlane) -> None:
    plane.push()
    artifact = plane.succeed()
    row = only(plane)
    assert (row["state"], row["artifact"], row["verified"]) == ("ready", artifact, True)
    assert row["numerics"] == "litert-reference"
    unknown = "checked", "machine", "threads", "p50_s", "peak_percent", "memory_bytes", "cost_per_million"
    assert {row[name] for name in unknown} == {None}


def test_figures_come_from_the_reports(plane: ControlPlane) -> None:
    plane.push()
    attach(plane, plane.succeed())
    row = only(plane)
    assert (row["machine"], row["threads"], row["p50_s"]) == ("a CPU of the tests", 1, 0.25)
    assert row["peak_percent"] == pytest.approx(50.0)  # 100 multiplications in 0.2 s are half of the peak of 1000/s.
    assert row["cost_per_million"] is None  # The host has no price.


def test_a_time_is_shown_without_layers(plane: ControlPlane) -> None:
    plane.push()
    artifact = plane.succeed()
    plane.services.layout.attach(artifact, Report.PROFILE, canonical_json(PROFILE))
    row = only(plane)
    assert (row["p50_s"], row["peak_percent"]) == (0.25, None)


def test_memory_consists_of_code_constants_and_working_memory(plane: ControlPlane) -> None:
    plane.push()
    layout, claim = plane.services.layout, plane.claim()
    config = layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json({"plan": {"arena_bytes": 640}}))
    library = layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, 30 * b"l")
    constants = layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, 4 * b"c")
    artifact = layout.put_manifest(Manifest(ARTIFACT_TYPE, config, (library, constants))).digest
    plane.services.builds.finish(claim, artifact=artifact)
    row = only(plane)
    assert (row["memory_bytes"], row["state"]) == (674, "unverified")  # the artifact has no report


@pytest.mark.parametrize("report", [b"no JSON", b"[]", canonical_json({"verified": "yes"})])
def test_an_artifact_without_a_report_of_verification_is_not_ready(plane: ControlPlane, report: bytes) -> None:
    plane.push()
    plane.services.layout.attach(plane.succeed(), Report.NUMERICS, report)
    row = only(plane)
    assert (row["state"], row["verified"]) == ("unverified", False)


def test_an_artifact_in_quarantine(plane: ControlPlane) -> None:
    plane.push()
    artifact = plane.succeed()
    for _ in range(plane.services.settings.max_crashes):
        plane.services.crashes.note([artifact], "signal 11")
    assert only(plane)["state"] == "quarantined"


def test_a_lost_artifact_is_missing(plane: ControlPlane) -> None:
    plane.push()
    plane.services.builds.invalidate(plane.succeed())
    assert only(plane)["state"] == "none"


def test_the_serving_artifact_counts_rather_than_later_builds(plane: ControlPlane) -> None:
    plane.push()
    artifact = plane.succeed()
    plane.push(numerics="onnxruntime")
    row = only(plane)
    assert (row["state"], row["artifact"]) == ("ready", artifact)


def test_other_batch_sizes_have_no_rows(plane: ControlPlane) -> None:
    plane.push(batch="1,8")
    plane.fail(UnsupportedOperator())
    row = only(plane)
    assert (row["state"], row["error"]) == ("failed", "unsupported_operator")


def test_every_pool_and_every_target_without_a_pool_have_rows(api: ControlPlane) -> None:
    api.push(target=HOST_TARGET)
    api.succeed()
    api.push(target=VNNI)
    for worker in (
        WORKER,
        replace(WORKER, id="b", loaded=()),
        replace(WORKER, id="c", state=WorkerState.DRAINING),
        replace(WORKER, id="d", pool="arm", target=ARM, loaded=()),
    ):
        api.services.workers.beat(worker)
    known = "pool", "target", "state", "workers", "capacity", "loaded"
    assert [tuple(row[name] for name in known) for row in rows(api)] == [
        ("arm", ARM, "none", 1, 4, 0),
        ("old", HOST_TARGET, "ready", 2, 8, 1),
        (None, VNNI, "queued", 0, 0, 0),
    ]


def test_a_worker_that_has_another_version_in_memory_does_not_count(api: ControlPlane) -> None:
    for body in (MODEL, MODEL + b"!"):
        api.push(body, target=HOST_TARGET)
        api.succeed()
    api.services.workers.beat(replace(WORKER, loaded=(("digits", ""),)))
    assert [only_row["loaded"] for only_row in rows(api)] == [1]
    assert [only_row["loaded"] for only_row in rows(api, version=1)] == [0]


@pytest.mark.parametrize(
    ("threads", "capacity", "cost"),
    [
        (1, 1, 12.5),  # 0.18 / 3600 * 0.25 * 10^6.
        (1, 4, 3.125),  # Four calls at the same time.
        (2, 4, 6.25),  # Two calls with two threads each.
        (8, 4, 12.5),  # One call at a time.
    ],
)
def test_the_cost_of_a_million_predictions(api: ControlPlane, threads: int, capacity: int, cost: float) -> None:
    api.push(target=HOST_TARGET)
    attach(api, api.succeed(), threads=threads)
    for id in "ab":  # a second worker doubles both the capacity and the cost
        api.services.workers.beat(replace(WORKER, id=id, capacity=capacity))
    assert only(api)["cost_per_million"] == pytest.approx(cost)


def test_a_gpu_runs_one_call_at_a_time(api: ControlPlane) -> None:
    api.push(target="cuda-sm_80")
    attach(api, api.succeed())
    api.services.workers.beat(replace(WORKER, target="cuda-sm_80", capacity=2))
    assert only(api)["cost_per_million"] == pytest.approx(12.5)


WORKERS_FIGURES = {
    "machine": "a worker's",
    "threads": 1,
    "p50_s": 0.2,
    "p99_s": 0.4,
    "per_s": 4.0,
    "peak_percent": 25.0,
}


def end(plane: ControlPlane, pool: str, *, passed: bool = True) -> None:
    """Completes the verification that waits for a worker of the pool."""
    claim = plane.services.verifications.claim("w", pool, 30, [HOST_TARGET])
    assert claim is not None
    result = {"summary": f"checked by {pool}", "pool": pool, **(WORKERS_FIGURES if passed else {})}
    plane.services.verifications.finish(claim, passed=passed, result=result)


def test_an_artifact_verified_by_a_worker_has_the_workers_figures(api: ControlPlane) -> None:
    api.push(target=HOST_TARGET)
    claim = api.claim()
    artifact = publish(api.services.layout, claim.inputs.source)
    report = canonical_json({"verified": False, "summary": "not checked"})
    api.services.layout.attach(artifact, Report.NUMERICS, report)
    attach(api, artifact)
    api.services.builds.finish(claim, artifact=artifact, is_verified=False)
    api.services.workers.beat(WORKER)
    row = only(api)
    assert (row["state"], row["verified"], row["measuring"]) == ("unverified", False, True)
    end(api, "old")
    row = only(api)
    assert (row["state"], row["verified"], row["measuring"], row["checked"]) == ("ready", True, False, "checked by old")
    assert {name: row[name] for name in WORKERS_FIGURES} == WORKERS_FIGURES
    assert row["cost_per_million"] == pytest.approx(0.18 / 3600 / 4.0 * 1e6 / 4)


def test_an_artifact_that_a_worker_found_wrong_is_refused(api: ControlPlane) -> None:
    api.push(target=HOST_TARGET)
    claim = api.claim()
    api.services.builds.finish(claim, artifact=publish(api.services.layout, claim.inputs.source), is_verified=False)
    end(api, "old", passed=False)
    row = only(api)
    assert (row["state"], row["verified"], row["checked"]) == ("refused", False, "checked by old")


def test_each_pool_measures_for_itself_on_request(api: ControlPlane) -> None:
    api.push(target=HOST_TARGET)
    attach(api, api.succeed())
    for pool in ("old", "new"):
        api.services.workers.beat(replace(WORKER, id=pool, pool=pool))
    assert [(row["measuring"], row["measured"]) for row in rows(api)] == [(False, False), (False, False)]
    response = api.client.post("/api/v1/models/digits/matrix")
    assert (response.status_code, [row["measuring"] for row in response.json()["rows"]]) == (202, [True, True])
    assert [row["measured"] for row in rows(api)] == [True, True]
    end(api, "old")
    new, old = rows(api)
    assert (new["machine"], new["p99_s"], new["measuring"]) == ("a CPU of the tests", None, True)
    assert (old["machine"], old["p99_s"], old["measuring"]) == ("a worker's", 0.4, False)
    end(api, "new", passed=False)
    response = api.client.post("/api/v1/models/digits/matrix")
    assert [(row["state"], row["measuring"]) for row in response.json()["rows"]] == [
        ("refused", False),
        ("ready", False),
    ]


def test_a_missing_model_or_version(plane: ControlPlane) -> None:
    problem(plane.client.get("/api/v1/models/digits/matrix"), 404, "not_found")
    plane.push()
    problem(plane.client.get("/api/v1/models/digits/matrix?version=2"), 404, "not_found")
    problem(plane.client.get("/api/v1/models/digits/matrix?version=0"), 400, "invalid_input")
