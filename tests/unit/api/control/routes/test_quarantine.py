"""Tests of `/api/v1/quarantine`, and of the crash records of artifacts that no longer exist."""

from __future__ import annotations

import json

import pytest

from service.core.digest import Digest, digest_of
from service.workers.garbage import collect_garbage
from tests.support.control_plane import HOST_TARGET, ControlPlane

ABSENT = digest_of(b"absent")


@pytest.fixture
def artifact(plane: ControlPlane) -> Digest:
    """The artifact of a built model, which is in quarantine."""
    plane.push()
    artifact = plane.succeed()
    for _ in range(plane.services.settings.max_crashes):
        plane.services.crashes.note([artifact], "signal 11: Segmentation fault")
    return artifact


def list_quarantine(plane: ControlPlane) -> list[str]:
    return [each["artifact"] for each in plane.client.get("/api/v1/quarantine").json()["artifacts"]]


def test_quarantined_artifacts_are_listed_with_the_models_that_use_them(plane: ControlPlane, artifact: Digest) -> None:
    (shown,) = plane.client.get("/api/v1/quarantine").json()["artifacts"]
    assert shown["artifact"] == artifact
    assert shown["how"] == "signal 11: Segmentation fault"
    assert len(shown["crashes"]) == 3
    assert shown["models"] == [{"name": "digits", "version": 1, "target": HOST_TARGET}]


def test_a_suspect_is_not_in_quarantine(plane: ControlPlane) -> None:
    plane.services.crashes.note([ABSENT], "signal 6")
    assert list_quarantine(plane) == []
    assert plane.client.delete(f"/api/v1/quarantine/{ABSENT}").status_code == 404


def test_a_released_artifact_may_run_again(plane: ControlPlane, artifact: Digest) -> None:
    assert plane.client.delete(f"/api/v1/quarantine/{artifact}").json()["artifact"] == artifact
    assert list_quarantine(plane) == []
    assert not plane.services.crashes.check(artifact)
    (noted, *_) = plane.services.audit.last(1)
    assert (noted["action"], noted["artifact"]) == ("forgive", artifact)
    assert plane.client.delete(f"/api/v1/quarantine/{artifact}").status_code == 404


def test_crash_records_of_deleted_artifacts_are_removed(plane: ControlPlane, artifact: Digest) -> None:
    services = plane.services
    services.crashes.note([ABSENT], "signal 6")
    collect_garbage(services.layout, services.builds, services.models, services.crashes, services.verifications)
    assert list(json.loads(services.settings.crashes_file.read_text())) == [artifact]
