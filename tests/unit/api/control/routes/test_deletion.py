"""Tests of deleting models over the API."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.core.access.key import Limits, Scope
from service.core.builds.build import BuildState
from service.core.errors import MalformedModel
from tests.support.control_plane import MODEL, ControlPlane, problem

OTHER = MODEL + b"!"


def delete(plane: ControlPlane, path: str = "digits", **query: Any) -> httpx.Response:
    return plane.client.delete(f"/api/v1/models/{path}", params=query)


def names(plane: ControlPlane) -> list[str]:
    return [model["name"] for model in plane.client.get("/api/v1/models").json()["models"]]


def test_a_model_is_deleted(plane: ControlPlane) -> None:
    plane.push()
    plane.succeed()
    plane.push(OTHER)
    plane.push(name="other")
    response = delete(plane)
    assert response.status_code == 202
    assert response.json() == {"name": "digits", "versions": [1, 2], "aliases": [], "builds": 1}
    assert names(plane) == ["other"]
    problem(plane.client.get("/api/v1/models/digits"), 404, "not_found")
    problem(delete(plane), 404, "not_found")


def test_a_version_is_deleted(plane: ControlPlane) -> None:
    plane.push()
    plane.push(OTHER)
    assert delete(plane, "digits/versions/2").json()["versions"] == [2]
    (left,) = plane.client.get("/api/v1/models/digits").json()["versions"]
    assert left["version"] == 1
    problem(delete(plane, "digits/versions/2"), 404, "not_found")


def test_a_deleted_models_builds_are_hidden_and_its_artifact_is_not_a_cache_hit(plane: ControlPlane) -> None:
    build = plane.push().json()["id"]
    plane.succeed()
    delete(plane)
    assert plane.client.get("/api/v1/builds").json() == {"builds": []}
    problem(plane.client.get(f"/api/v1/builds/{build}"), 404, "not_found")
    assert plane.push().status_code == 202


@pytest.mark.parametrize("path", ["digits", "digits/versions/1"])
def test_a_version_with_an_alias_is_deleted_only_if_forced(plane: ControlPlane, path: str) -> None:
    plane.push()
    plane.succeed()
    plane.services.aliases.promote("digits", "stable", 1, 100)
    refused = problem(delete(plane, path), 409, "conflict")
    assert "'stable'" in refused["detail"]
    assert "force" in refused["hint"]
    assert names(plane) == ["digits"]
    assert delete(plane, path, force="true").json()["aliases"] == ["stable"]
    assert names(plane) == []


def test_a_running_build_is_canceled(plane: ControlPlane) -> None:
    plane.push()
    assert delete(plane).json()["builds"] == 1
    assert plane.services.builds.claim("worker", 60.0) is None


def test_deletions_are_in_the_audit_log(plane: ControlPlane) -> None:
    plane.push()
    delete(plane)
    entry = plane.client.get("/api/v1/audit").json()["entries"][0]
    assert (entry["action"], entry["model"], entry["versions"], entry["who"]) == ("delete", "digits", [1], "anybody")


def test_a_key_for_predictions_cannot_delete(plane: ControlPlane) -> None:
    plane.push()
    text = plane.services.access.keys.create("camera", [Scope.PREDICT], Limits())[1]
    plane.services.access.changed()
    headers = {"Authorization": f"Bearer {text}"}
    problem(plane.client.delete("/api/v1/models/digits", headers=headers), 403, "forbidden")
    assert plane.services.models.get("digits").number == 1


def test_a_push_of_a_deleted_version_requests_no_build(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is deleted after its file was pushed, but before its build is requested."""
    submit = plane.services.builds.submit

    def deleted_meanwhile(*arguments: Any) -> Any:
        plane.services.models.delete("digits")
        return submit(*arguments)

    monkeypatch.setattr(plane.services.builds, "submit", deleted_meanwhile)
    problem(plane.push(), 404, "not_found")
    assert plane.services.builds.list() == ([], None)


class TestState:
    """Tests of the state of a version in the lists of models and versions."""

    def state(self, plane: ControlPlane, name: str = "digits") -> tuple[str, str | None]:
        listed = {model["name"]: model for model in plane.client.get("/api/v1/models").json()["models"]}
        (newest, *_) = plane.client.get(f"/api/v1/models/{name}").json()["versions"]
        one = plane.client.get(newest["url"]).json()
        assert one["state"] == newest["state"] == listed[name]["state"]
        return newest["state"], newest["reason"]

    def test_queued(self, plane: ControlPlane) -> None:
        plane.push()
        assert self.state(plane) == ("building", "queued")

    def test_ready(self, plane: ControlPlane) -> None:
        build = plane.push().json()["id"]
        artifact = plane.succeed()
        assert self.state(plane) == ("ready", None)
        (listed,) = plane.client.get("/api/v1/models").json()["models"]
        assert (listed["build"], listed["artifact"]) == (build, artifact)

    def test_a_failed_version_has_a_reason(self, plane: ControlPlane) -> None:
        plane.push()
        plane.fail(MalformedModel("the file ends in the middle"))
        assert self.state(plane) == ("failed", "the file ends in the middle")

    def test_a_failure_for_another_target_does_not_count(self, plane: ControlPlane) -> None:
        plane.push()
        plane.succeed()
        plane.client.post("/api/v1/models/digits/builds", json={"targets": ["aarch64"]})
        plane.fail(MalformedModel())
        assert self.state(plane) == ("ready", None)

    def test_canceled(self, plane: ControlPlane) -> None:
        build = plane.push().json()["id"]
        plane.client.post(f"/api/v1/builds/{build}/cancel")
        assert self.state(plane) == ("canceled", f"build {build} was canceled")

    def test_built_for_other_targets_only(self, plane: ControlPlane) -> None:
        plane.push(target="aarch64")
        plane.succeed()
        assert self.state(plane) == ("elsewhere", "built for aarch64, which does not run here")

    def test_in_quarantine(self, plane: ControlPlane) -> None:
        plane.push()
        artifact = plane.succeed()
        for _ in range(plane.services.settings.max_crashes):
            plane.services.crashes.note([artifact], "signal 11")
        state, reason = self.state(plane)
        assert state == "quarantined"
        assert "crashed 3 times" in (reason or "")

    def test_unloaded(self, plane: ControlPlane) -> None:
        plane.push()
        plane.succeed()
        assert plane.client.post("/v2/repository/models/digits/unload").status_code == 200
        assert self.state(plane)[0] == "unloaded"

    def test_a_version_that_cannot_be_loaded_has_a_reason(self, plane: ControlPlane) -> None:
        plane.push()
        plane.succeed()  # the build has an artifact that cannot run here
        plane.client.post("/v2/repository/models/digits/load")
        state, reason = self.state(plane)
        assert state == "failed"
        assert reason


class TestSecondName:
    """Tests with two names for one file, which share a build."""

    def test_a_second_name_has_the_build_and_artifact_of_the_first(self, plane: ControlPlane) -> None:
        plane.push()
        artifact = plane.succeed()
        pushed = plane.push(name="again")
        assert pushed.status_code == 200
        first, second = (
            plane.client.get(f"/api/v1/models/{name}").json()["versions"][0] for name in ("digits", "again")
        )
        assert (second["state"], second["artifact"], second["build"]) == ("ready", artifact, first["build"])
        assert second["facts"]
        assert second["facts"] == first["facts"]

    def test_builds_name_the_models_that_requested_them(self, plane: ControlPlane) -> None:
        plane.push()
        plane.succeed()
        plane.push(name="again")
        both = [{"name": "digits", "version": 1}, {"name": "again", "version": 1}]
        (listed,) = plane.client.get("/api/v1/builds").json()["builds"]
        (build,) = plane.client.get("/api/v1/builds?model=again").json()["builds"]
        assert (listed["model"], listed["models"]) == ("digits", both)
        assert (build["model"], build["models"]) == ("again", both)

    def test_a_second_name_is_independent_of_the_first(self, plane: ControlPlane) -> None:
        plane.push()
        artifact = plane.succeed()
        plane.push(name="again")
        assert delete(plane).json()["builds"] == 0
        (listed,) = plane.client.get("/api/v1/builds").json()["builds"]
        assert (listed["model"], listed["state"], listed["artifact"]) == ("again", BuildState.SUCCEEDED, artifact)
