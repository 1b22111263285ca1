from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.core.models.facts import Facts
from tests.support.control_plane import FACTS, HOST_TARGET, MODEL, ControlPlane, problem

OTHER = MODEL + b"!"


def test_no_models(plane: ControlPlane) -> None:
    assert plane.client.get("/api/v1/models").json() == {"models": [], "broken_files": []}


def test_each_model_is_listed_with_its_newest_version(plane: ControlPlane) -> None:
    plane.push(name="b")
    plane.push(OTHER, name="b")
    plane.push(name="a")
    models = plane.client.get("/api/v1/models").json()["models"]
    assert [(model["name"], model["version"]) for model in models] == [("a", 1), ("b", 2)]


def test_pages_have_links(plane: ControlPlane) -> None:
    for name in "abc":
        plane.push(name=name)
    names: list[str] = []
    url = "/api/v1/models?limit=2"
    while url:
        response = plane.client.get(url)
        names += [model["name"] for model in response.json()["models"]]
        url = response.links.get("next", {}).get("url", "")
    assert names == ["a", "b", "c"]


@pytest.mark.parametrize("url", ["/api/v1/models/digits", "/api/v1/models/digits/versions"])
def test_versions_are_listed_newest_first(plane: ControlPlane, url: str) -> None:
    plane.push()
    plane.push(OTHER)
    model = plane.client.get(url).json()
    assert model["name"] == "digits"
    assert [version["version"] for version in model["versions"]] == [2, 1]


def test_a_version_describes_the_pushed_file(plane: ControlPlane) -> None:
    plane.push()
    version = plane.client.get("/api/v1/models/digits/versions/1").json()
    assert (version["format"], version["size_bytes"]) == ("tflite", len(MODEL))
    assert version["created_at"].endswith("Z")
    assert plane.client.get(version["url"]).json() == version


def test_a_push_describes_the_version(plane: ControlPlane) -> None:
    plane.push(labels="cat, dog", columns="a,b", sampling_rate=16000, standardize="false")
    metadata = plane.client.get("/api/v1/models/digits/versions/1").json()["metadata"]
    described = {name: metadata[name] for name in ("labels", "columns", "sampling_rate", "standardize")}
    columns = ["a", "b"]
    assert described == {"labels": ["cat", "dog"], "columns": columns, "sampling_rate": 16000, "standardize": False}


@pytest.mark.parametrize("query", [{"columns": "a,a"}, {"sampling_rate": 1}, {"labels": "x" * 4001}])
def test_a_wrong_description_is_refused(plane: ControlPlane, query: dict[str, Any]) -> None:
    assert plane.push(**query).status_code in (400, 422)
    assert plane.client.get("/api/v1/models").json()["models"] == []


def test_a_version_has_a_signature_after_its_build(plane: ControlPlane) -> None:
    plane.push()
    assert plane.client.get("/api/v1/models/digits/versions/1").json()["facts"] is None
    plane.succeed()
    plane.push(OTHER)
    newest, built = plane.client.get("/api/v1/models/digits").json()["versions"]
    assert newest["facts"] is None
    assert Facts.from_json(built["facts"]) == FACTS
    assert plane.client.get(built["url"]).json()["facts"] == built["facts"]


@pytest.mark.parametrize("path", ["", "/versions", "/versions/1"])
def test_a_missing_model(plane: ControlPlane, path: str) -> None:
    problem(plane.client.get(f"/api/v1/models/nothing{path}"), 404, "not_found")


def test_a_missing_version(plane: ControlPlane) -> None:
    plane.push()
    problem(plane.client.get("/api/v1/models/digits/versions/2"), 404, "not_found")


@pytest.mark.parametrize("version", ["0", "one", "1e3", "99999999999999999999"])
def test_an_invalid_version(plane: ControlPlane, version: str) -> None:
    plane.push()
    problem(plane.client.get(f"/api/v1/models/digits/versions/{version}"), 400, "invalid_input")


def ask(plane: ControlPlane, **members: Any) -> httpx.Response:
    return plane.client.post("/api/v1/models/digits/builds", json={"targets": ["host"], **members})


def test_builds_for_more_targets(plane: ControlPlane) -> None:
    plane.push()
    response = ask(plane, targets=["aarch64", "x86-64-v4"])
    assert response.status_code == 202
    assert [build["target"] for build in response.json()["builds"]] == ["aarch64", "x86-64-v4"]
    listed = plane.client.get(response.headers["location"]).json()["builds"]
    assert {build["target"] for build in listed} == {HOST_TARGET, "aarch64", "x86-64-v4"}


def test_a_build_for_one_target_has_a_location(plane: ControlPlane) -> None:
    plane.push()
    response = ask(plane, targets=["aarch64"])
    assert response.headers["location"] == response.json()["builds"][0]["links"]["self"]


def test_host_and_the_hosts_target_are_the_same(plane: ControlPlane) -> None:
    plane.push()
    assert len(ask(plane, targets=["host", HOST_TARGET]).json()["builds"]) == 1


def test_builds_that_all_succeeded_before_give_200(plane: ControlPlane) -> None:
    plane.push()
    plane.succeed()
    assert ask(plane).status_code == 200
    assert ask(plane, targets=["host", "aarch64"]).status_code == 202


def test_the_newest_version_is_the_default(plane: ControlPlane) -> None:
    plane.push()
    plane.push(OTHER)
    assert ask(plane).json()["builds"][0]["version"] == 2
    assert ask(plane, version=1).json()["builds"][0]["version"] == 1


def test_numerics_is_an_option(plane: ControlPlane) -> None:
    plane.push()
    assert ask(plane, options={"numerics": "xnnpack"}).json()["builds"][0]["numerics"] == "xnnpack"


def test_an_unknown_target_starts_no_build(plane: ControlPlane) -> None:
    plane.push()
    problem(ask(plane, targets=["aarch64", "z80"]), 422, "unknown_target")
    assert len(plane.client.get("/api/v1/builds").json()["builds"]) == 1


@pytest.mark.parametrize(
    "members",
    [{"targets": []}, {"targets": "host"}, {"options": {"level": 3}}, {"extra": 1}, {"version": 0}, {"version": 2**70}],
)
def test_invalid_requests_for_builds(plane: ControlPlane, members: dict[str, Any]) -> None:
    plane.push()
    problem(ask(plane, **members), 400, "invalid_input")


def test_invalid_json(plane: ControlPlane) -> None:
    headers = {"Content-Type": "application/json"}
    response = plane.client.post("/api/v1/models/digits/builds", content=b"{", headers=headers)
    problem(response, 400, "invalid_input")


def test_builds_of_a_missing_model(plane: ControlPlane) -> None:
    problem(ask(plane), 404, "not_found")
