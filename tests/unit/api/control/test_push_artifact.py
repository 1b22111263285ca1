"""Tests of pushing archives of artifacts: the checks before an artifact is verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.access.rules import scopes_of
from service.cache import Manifest, OciLayout
from service.cache.export import export
from service.core.access.key import Scope
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    CONSTANTS_MEDIA_TYPE,
    LIBRARY_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    TARGET_ANNOTATION,
)
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from tests.support.control_plane import HOST_TARGET, MODEL, ControlPlane, problem


def archive(folder: Path, target: str = HOST_TARGET) -> bytes:
    layout = OciLayout(folder / target)
    annotations = {TARGET_ANNOTATION: target, NUMERICS_ANNOTATION: "litert-reference"}
    kinds = (CONFIG_MEDIA_TYPE, LIBRARY_MEDIA_TYPE, CONSTANTS_MEDIA_TYPE)
    config, *layers = (layout.put_blob_descriptor(kind, kind.encode()) for kind in kinds)
    digest = layout.put_manifest(Manifest(ARTIFACT_TYPE, config, tuple(layers), annotations)).digest
    return b"".join(export(layout, digest).chunks())


def push(plane: ControlPlane, body: bytes, **query: Any) -> httpx.Response:
    return plane.client.put("/api/v1/artifacts", params={"name": "digits", **query}, content=body)


def test_the_build_has_the_artifacts_target(plane: ControlPlane, tmp_path: Path) -> None:
    response = push(plane, archive(tmp_path / "a", "aarch64"))
    assert response.status_code == 202
    build = plane.client.get(response.headers["location"]).json()
    assert (build["target"], build["numerics"], build["state"]) == ("aarch64", "litert-reference", "queued")
    (version,) = plane.client.get("/api/v1/models/digits").json()["versions"]
    assert (version["format"], version["state"]) == ("artifact", "building")


def test_the_same_archive_is_the_same_version_and_build(plane: ControlPlane, tmp_path: Path) -> None:
    body = archive(tmp_path / "a")
    first, second = push(plane, body).json(), push(plane, body).json()
    assert (first["id"], first["version"]) == (second["id"], second["version"])
    assert push(plane, b"", source=first["source"]).json()["id"] == first["id"]


def test_an_artifact_cannot_be_pushed_as_a_model(plane: ControlPlane, tmp_path: Path) -> None:
    body = archive(tmp_path / "a")
    refused = problem(plane.push(body), 415, "unsupported_format")
    assert "octet push DIR" in refused["hint"]
    source = plane.services.layout.blobs.put_bytes(body)
    problem(plane.push(b"", source=source), 415, "unsupported_format")
    assert scopes_of("PUT", "/api/v1/artifacts") == (Scope.ADMIN,)


def test_a_model_file_is_not_an_artifact(plane: ControlPlane) -> None:
    problem(push(plane, MODEL), 415, "unsupported_format")


def test_an_artifact_for_an_unknown_target_is_refused(plane: ControlPlane, tmp_path: Path) -> None:
    problem(push(plane, archive(tmp_path / "a", "z80")), 422, "unknown_target")
    assert plane.client.get("/api/v1/models").json()["models"] == []


@pytest.mark.parametrize("body", [{"targets": ["aarch64"]}, {"targets": [HOST_TARGET], "options": {"batch": [1, 8]}}])
def test_no_other_builds_of_an_artifact_are_accepted(plane: ControlPlane, tmp_path: Path, body: dict[str, Any]) -> None:
    push(plane, archive(tmp_path / "a"))
    problem(plane.client.post("/api/v1/models/digits/builds", json=body), 422, "unsupported")


def test_a_push_of_an_artifact_is_in_the_audit_log(plane: ControlPlane, tmp_path: Path) -> None:
    push(plane, archive(tmp_path / "a"))
    entry = plane.client.get("/api/v1/audit").json()["entries"][0]
    assert (entry["action"], entry["model"]) == ("push_artifact", "digits")
