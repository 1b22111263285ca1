"""Tests of promotion, rollback and aliases in the control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from service.core.models.alias import aliases_in
from tests.support.control_plane import HOST_TARGET, MODEL, ControlPlane, control_plane, problem

ELSEWHERE = "aarch64"  # artifacts for this target cannot be loaded here


@pytest.fixture
def built(plane: ControlPlane) -> ControlPlane:
    """A model with three versions, all built."""
    for version in range(3):
        plane.push(MODEL + bytes(version), target=ELSEWHERE)
        plane.succeed()
    return plane


def promote(plane: ControlPlane, version: int, **members: Any) -> httpx.Response:
    return plane.client.post("/api/v1/models/digits/promote", json={"version": version, **members})


def rollback(plane: ControlPlane, **members: Any) -> httpx.Response:
    return plane.client.post("/api/v1/models/digits/rollback", json=members)


def describe_alias(response: httpx.Response) -> tuple[int, dict[str, int] | None, list[int]]:
    assert response.status_code == 200, response.text
    alias = response.json()
    return alias["version"], alias["canary"], alias["previous"]


def test_a_version_is_promoted_and_rolled_back(built: ControlPlane) -> None:
    assert describe_alias(promote(built, 1)) == (1, None, [])
    assert describe_alias(promote(built, 2)) == (2, None, [1])
    assert describe_alias(rollback(built)) == (1, None, [])
    problem(rollback(built), 409, "conflict")


def test_a_rollback_needs_no_body(built: ControlPlane) -> None:
    promote(built, 1)
    promote(built, 2)
    assert describe_alias(built.client.post("/api/v1/models/digits/rollback")) == (1, None, [])


def test_a_canary_is_shown_with_its_share(built: ControlPlane) -> None:
    promote(built, 1)
    assert describe_alias(promote(built, 2, percent=10)) == (1, {"version": 2, "percent": 10}, [])
    assert describe_alias(rollback(built, away_from=2)) == (1, None, [])
    assert describe_alias(rollback(built, away_from=2)) == (1, None, [])


def test_aliases_are_shown_with_their_models(built: ControlPlane) -> None:
    promote(built, 1)
    promote(built, 2, alias="mine")
    (listed,) = built.client.get("/api/v1/models").json()["models"]
    model = built.client.get("/api/v1/models/digits").json()
    aliases = built.client.get("/api/v1/models/digits/aliases").json()["aliases"]
    assert listed["version"] == 3
    assert listed["aliases"] == model["aliases"] == aliases
    assert [(alias["name"], alias["version"]) for alias in aliases] == [("mine", 2), ("stable", 1)]


def test_every_change_is_written_to_the_index_of_the_store(built: ControlPlane) -> None:
    def recorded() -> list[tuple[str, int]]:
        found = aliases_in(built.services.layout.annotations())
        return [(alias.name, alias.version) for alias in found]

    promote(built, 1)
    promote(built, 2)
    promote(built, 3, alias="mine")
    assert recorded() == [("mine", 3), ("stable", 2)]
    rollback(built)
    assert built.client.delete("/api/v1/models/digits/aliases/mine").status_code == 204
    assert recorded() == [("stable", 1)]


def test_a_version_that_is_not_built_is_not_promoted(plane: ControlPlane) -> None:
    plane.push()
    document = problem(promote(plane, 1), 409, "conflict")
    assert "no succeeded build" in document["detail"]
    assert plane.services.aliases.list() == []


def test_a_version_that_cannot_be_loaded_here_is_not_promoted(plane: ControlPlane) -> None:
    plane.push(target=HOST_TARGET)
    plane.succeed()  # the build has an artifact that cannot run here
    document = problem(promote(plane, 1), 503, "not_ready")
    assert "cannot be loaded here" in document["detail"]
    assert plane.services.aliases.list() == []


def test_promotions_that_are_refused(built: ControlPlane) -> None:
    refused: list[tuple[dict[str, Any], int]] = [
        ({"version": 4}, 404),
        ({"version": 0}, 400),
        ({"version": 1, "percent": 0}, 400),
        ({"version": 1, "percent": 101}, 400),
        ({"version": 1, "percent": 50}, 400),
        ({"version": 1, "alias": "latest"}, 400),
        ({"version": 1, "alias": "7"}, 400),
        ({"version": 1, "alias": "a@b"}, 400),
        ({"version": 1, "weight": 50}, 400),
    ]
    for members, status in refused:
        response = built.client.post("/api/v1/models/digits/promote", json=members)
        assert (members, response.status_code) == (members, status)
    assert built.services.aliases.list() == []


def test_a_missing_model_or_version_is_not_found(built: ControlPlane) -> None:
    problem(built.client.post("/api/v1/models/cats/promote", json={"version": 1}), 404, "not_found")
    problem(built.client.post("/api/v1/models/cats/rollback"), 404, "not_found")
    problem(built.client.get("/api/v1/models/cats/aliases"), 404, "not_found")
    problem(rollback(built), 404, "not_found")
    problem(built.client.delete("/api/v1/models/digits/aliases/stable"), 404, "not_found")


def test_a_service_knows_its_aliases_without_the_database(tmp_path: Path) -> None:
    with control_plane(tmp_path) as plane:
        for version in range(2):
            plane.push(MODEL + bytes(version), target=ELSEWHERE)
            plane.succeed()
            promote(plane, version + 1)
        known = plane.client.get("/api/v1/models/digits/aliases").json()
    for file in tmp_path.glob("octet.sqlite3*"):
        file.unlink()
    with control_plane(tmp_path) as plane:
        assert plane.client.get("/api/v1/models/digits/aliases").json() == known
