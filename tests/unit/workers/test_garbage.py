"""Tests that a garbage collection of the whole service keeps every blob that a model, a build or the index refers
to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.api.control import submission
from service.cache import MIN_AGE_S
from service.core.artifacts.artifact import Report
from service.core.digest import Digest, digest_of
from service.core.models.model import ModelVersion
from service.db import VerificationStore
from service.workers import garbage
from service.workers.catalog import delete_model
from service.workers.crashes import crashes_of
from service.workers.garbage import Collector, collect_garbage
from tests.support.blobs import age_blob
from tests.support.building import CompileSetup
from tests.support.control_plane import MODEL, ControlPlane, control_plane
from tests.support.waiting import eventually


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path) as plane:
        yield plane


def make_all_older(plane: ControlPlane) -> None:
    for digest in plane.services.layout.blobs.iterate():
        age_blob(plane.services.layout.root, digest, 2 * MIN_AGE_S)


def collect(plane: ControlPlane) -> tuple[Digest, ...]:
    services = plane.services
    return collect_garbage(
        services.layout, services.builds, services.models, services.crashes, services.verifications
    ).digests


def collector_of(workshop: CompileSetup, now_s: Callable[[], float]) -> Collector:
    crashes = crashes_of(workshop.settings)
    verifications = VerificationStore(workshop.database)
    return Collector(workshop.layout, workshop.builds, workshop.models, crashes, verifications, now_s)


def is_whole(plane: ControlPlane, artifact: Digest) -> bool:
    layout = plane.services.layout
    manifest = layout.manifest(artifact)
    return all(layout.blobs.exists(part.digest) for part in (manifest.config, *manifest.layers))


def test_a_blob_without_references_is_deleted(plane: ControlPlane) -> None:
    orphan = plane.services.layout.blobs.put_bytes(b"pushed by nobody")
    plane.push()
    plane.succeed()
    make_all_older(plane)
    assert collect(plane) == (orphan,)


def test_a_pushed_model_that_is_not_yet_in_the_index_is_kept(plane: ControlPlane) -> None:
    services = plane.services
    source = services.layout.blobs.put_bytes(MODEL)
    # as if the process had been killed before the index was written
    services.models.push("digits", source, "tflite", len(MODEL))
    make_all_older(plane)
    assert collect(plane) == ()


def test_an_artifact_of_a_build_that_is_not_in_the_index_is_kept(plane: ControlPlane) -> None:
    plane.push()
    artifact = plane.succeed()
    plane.services.layout.remove(artifact)
    make_all_older(plane)
    collect(plane)
    assert is_whole(plane, artifact)


def test_a_deleted_model_is_garbage_with_all_its_artifacts(plane: ControlPlane) -> None:
    services = plane.services
    plane.push()
    plane.succeed()
    delete_model(services.layout, services.models, services.aliases, "digits", force=False)
    collect(plane)
    assert len(services.layout.index()) > 1  # the remaining objects are recent, so new objects may soon refer to them
    make_all_older(plane)
    collect(plane)
    assert (services.layout.index(), list(services.layout.blobs.iterate())) == ([], [])


def test_blobs_that_a_deleted_model_shared_are_kept(plane: ControlPlane) -> None:
    services = plane.services
    plane.push()
    artifact = plane.succeed()
    assert plane.push(name="again").status_code == 200
    delete_model(services.layout, services.models, services.aliases, "digits", force=False)
    make_all_older(plane)
    assert collect(plane) == ()
    assert is_whole(plane, artifact)
    assert services.layout.attached(artifact, Report.NUMERICS) is not None


def test_an_artifact_of_a_lost_database_is_not_garbage(plane: ControlPlane, tmp_path: Path) -> None:
    plane.push()
    artifact = plane.succeed()
    plane.push()  # this push is also recorded in the index, which lists the models that the artifact was made for
    make_all_older(plane)
    with control_plane(tmp_path / "empty") as empty:
        services = empty.services
        collect_garbage(
            plane.services.layout, services.builds, services.models, services.crashes, services.verifications
        )
    assert is_whole(plane, artifact)


def test_the_file_of_a_queued_or_running_build_is_kept(plane: ControlPlane) -> None:
    plane.push()
    make_all_older(plane)
    assert collect(plane) == ()
    plane.claim()
    assert collect(plane) == ()


def test_an_upload_in_progress_is_kept(plane: ControlPlane) -> None:
    with plane.services.layout.blobs.writer() as writer:
        writer.write(MODEL[:10])
        assert collect(plane) == ()
        writer.write(MODEL[10:])
        assert writer.commit() == digest_of(MODEL)


def test_an_old_orphan_is_kept_once_a_push_has_found_it(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plane.services.layout.blobs.put_bytes(MODEL)
    make_all_older(plane)
    add_version = submission.add_version

    def after_a_collection(*arguments: Any) -> ModelVersion:
        assert collect(plane) == ()
        return add_version(*arguments)

    monkeypatch.setattr(submission, "add_version", after_a_collection)
    assert plane.push(b"", source=source).status_code == 202


def test_old_orphans_can_be_referred_to_while_garbage_is_collected(plane: ControlPlane) -> None:
    services = plane.services
    with collecting_without_end(plane):
        for number in range(20):
            body = MODEL + bytes([number])
            # If the collector has deleted the blob before, the push reports this, and the file is sent instead.
            source = services.layout.blobs.put_bytes(body)
            age_blob(services.layout.root, source, 2 * MIN_AGE_S)
            response = plane.push(b"", source=source)
            if response.status_code == 404:
                response = plane.push(body)
            assert response.status_code == 202, response.text
    assert len(services.models.sources()) == 20
    assert all(services.layout.blobs.exists(source) for source in services.models.sources())


def test_builds_that_reuse_old_orphans_are_complete_while_garbage_is_collected(plane: ControlPlane) -> None:
    root = plane.services.layout.root
    artifacts = []
    with collecting_without_end(plane):
        for number in range(10):
            body = MODEL + bytes([number])
            plane.push(body, name=f"model-{number}")
            layout = plane.services.layout
            for part in (b"{}", b"constants", b"a library of " + digest_of(body).encode()):
                age_blob(root, layout.blobs.put_bytes(part), 2 * MIN_AGE_S)  # a blob that an earlier attempt stored
            artifacts.append(plane.succeed())
    assert len(set(artifacts)) == 10
    assert all(is_whole(plane, artifact) for artifact in artifacts)


@contextmanager
def collecting_without_end(plane: ControlPlane) -> Iterator[None]:
    stop, rounds = threading.Event(), [0]

    def run() -> None:
        while not stop.is_set():
            collect(plane)
            rounds[0] += 1

    thread = threading.Thread(target=run, name="collector")
    thread.start()
    try:
        eventually(lambda: rounds[0] > 0)
        yield
    finally:
        stop.set()
        thread.join()
    assert rounds[0] > 1


class TestCollector:
    """Tests of the times at which the collector runs, with a clock of the test."""

    @pytest.fixture
    def workshop(self, tmp_path: Path) -> CompileSetup:
        return CompileSetup(tmp_path)

    @pytest.fixture
    def orphan(self, workshop: CompileSetup) -> Digest:
        orphan = workshop.layout.blobs.put_bytes(b"orphan")
        age_blob(workshop.layout.root, orphan, 2 * MIN_AGE_S)
        return orphan

    def test_it_collects_soon_after_the_start_and_then_every_hour(self, workshop: CompileSetup, orphan: Digest) -> None:
        now = [1000.0]
        collector = collector_of(workshop, lambda: now[0])
        collector.collect_if_due()
        assert workshop.layout.blobs.exists(orphan)
        now[0] += 61
        collector.collect_if_due()
        assert not workshop.layout.blobs.exists(orphan)
        workshop.layout.blobs.put_bytes(b"orphan")
        age_blob(workshop.layout.root, orphan, 2 * MIN_AGE_S)
        now[0] += 3599
        collector.collect_if_due()
        assert workshop.layout.blobs.exists(orphan)
        now[0] += 2
        collector.collect_if_due()
        assert not workshop.layout.blobs.exists(orphan)

    def test_a_failure_is_logged_and_retried_later(
        self, workshop: CompileSetup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        now = [0.0]
        collector = collector_of(workshop, lambda: now[0])
        calls: list[float] = []

        def fail(*arguments: object) -> None:
            calls.append(now[0])
            raise OSError("the disk is gone")

        monkeypatch.setattr(garbage, "collect_garbage", fail)
        with caplog.at_level(logging.ERROR):
            for now[0] in (100.0, 200.0, 4000.0):
                collector.collect_if_due()
        assert calls == [100.0, 4000.0]
        assert "cannot collect garbage" in caplog.text
