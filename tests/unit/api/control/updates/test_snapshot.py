"""Tests of the state that the page shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from service.api.access.tenants import tenant
from service.api.control.updates.changes import State
from service.api.control.updates.snapshot import Snapshots
from service.core.access.tenant import prefix_of
from tests.support.control_plane import ControlPlane


@pytest.fixture
def of_tenant() -> Iterator[str]:
    """The name of a tenant, whose requests these are."""
    token = tenant.set("acme")
    yield "acme"
    tenant.reset(token)


def state_of(plane: ControlPlane, *, reads: bool = True) -> State:
    return asyncio.run(Snapshots(plane.services).take(reads))


def test_models_and_builds_are_in_the_form_of_the_api(plane: ControlPlane) -> None:
    plane.push()
    state = state_of(plane)
    listed = plane.client.get("/api/v1/models").json()["models"][0]
    assert state["models"]["digits"] == {name: listed[name] for name in listed.keys() - {"metadata", "facts"}}
    (build,) = state["builds"].values()
    assert build == plane.client.get(f"/api/v1/builds/{build['id']}").json() | {"course": None}


def test_a_build_in_progress_has_its_stages(plane: ControlPlane) -> None:
    plane.push()
    plane.succeed()
    (build,) = state_of(plane)["builds"].values()
    assert build["state"] == "succeeded"
    assert list(build["course"]) == ["codegen"]


def test_an_invalid_request_is_not_counted_as_refused(plane: ControlPlane) -> None:
    for reason, count in (("invalid", 3), ("queue_full", 2), ("deadline", 1)):
        plane.services.metrics.requests_rejected.labels(reason).inc(count)
    load = state_of(plane)["load"]
    assert (load["refused"], load["invalid"]) == (3, 3)


def test_answers_are_counted_for_each_version(plane: ControlPlane) -> None:
    counts = [1] + [0] * len(plane.services.metrics.request_duration.bounds)
    for code, protocol in (("200", "rest"), ("OK", "grpc"), ("500", "rest")):
        plane.services.metrics.request_duration.labels("digits", "2", "x86-64-v3", protocol, code).add(counts, 0.1)
    state = state_of(plane)
    assert state["load"]["answered"] == 3
    assert state["latency"] == {"digits/2": {"counts": [3, *counts[1:]], "failed": 1}}


def test_a_key_for_predictions_gets_the_index_only(plane: ControlPlane) -> None:
    plane.push()
    assert set(state_of(plane, reads=False)) == {"index"}


def test_a_tenant_sees_its_own_models_only(plane: ControlPlane, of_tenant: str) -> None:
    counts = [1] + [0] * len(plane.services.metrics.request_duration.bounds)
    for model in ("digits", prefix_of(of_tenant) + "letters"):
        plane.services.metrics.request_duration.labels(model, "1", "x86-64-v3", "rest", "200").add(counts, 0.1)
    plane.services.metrics.requests_rejected.labels("queue_full").inc(7)
    state = state_of(plane)
    assert set(state["latency"]) == {"letters/1"}
    assert (state["load"]["answered"], state["load"]["refused"]) == (1, 0)
