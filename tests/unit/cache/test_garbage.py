"""Tests of garbage collection: which blobs are deleted, and which are kept."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from service.cache import Manifest, OciLayout
from service.cache.garbage import reachable_from
from service.core.digest import Digest, digest_of
from tests.support.blobs import damage_blob
from tests.support.buckets import make_older
from tests.support.memory_store import MemoryBlobStore

REPORT = "application/vnd.example.report+json"
HOUR_S = 3600.0


def put_artifact(layout: OciLayout, library: bytes) -> Digest:
    config = layout.put_blob_descriptor("application/vnd.example.config+json", b"config of " + library)
    layer = layout.put_blob_descriptor("application/vnd.example.library", library)
    return layout.put_manifest(Manifest("application/vnd.example.artifact", config, (layer,))).digest


def test_blobs_reachable_from_the_index_are_kept(layout: OciLayout) -> None:
    subject = put_artifact(layout, b"library")
    layout.attach(subject, REPORT, b"report")
    before = set(layout.blobs.iterate())
    assert layout.collect_garbage(min_age_s=0).digests == ()
    assert set(layout.blobs.iterate()) == before


def test_blobs_of_a_removed_manifest_are_deleted(layout: OciLayout) -> None:
    kept = put_artifact(layout, b"kept")
    before = set(layout.blobs.iterate())
    removed = put_artifact(layout, b"removed")
    layout.attach(removed, REPORT, b"report")
    doomed = set(layout.blobs.iterate()) - before
    layout.remove(removed)
    freed = layout.blobs.total_bytes()
    collected = layout.collect_garbage(min_age_s=0)
    assert set(collected.digests) == doomed
    assert collected.size_bytes == freed - layout.blobs.total_bytes()
    assert layout.manifest(kept)


def test_a_shared_layer_is_kept_while_a_manifest_refers_to_it(layout: OciLayout) -> None:
    shared = layout.put_blob_descriptor("application/x", b"shared")
    first = layout.put_manifest(Manifest("application/vnd.example.a", shared, (shared,))).digest
    layout.put_manifest(Manifest("application/vnd.example.b", shared, (shared,)))
    layout.remove(first)
    assert layout.collect_garbage(min_age_s=0).digests == (first,)


def test_a_replaced_report_is_deleted(layout: OciLayout) -> None:
    subject = put_artifact(layout, b"library")
    old = layout.attach(subject, REPORT, b"old")
    layout.attach(subject, REPORT, b"new")
    assert set(layout.collect_garbage(min_age_s=0).digests) == {old, digest_of(b"old")}


def test_roots_are_kept(layout: OciLayout) -> None:
    source = layout.blobs.put_bytes(b"a model file")
    orphan = layout.blobs.put_bytes(b"an orphan")
    assert layout.collect_garbage(roots=[source], min_age_s=0).digests == (orphan,)


def test_a_manifest_as_root_keeps_its_blobs(layout: OciLayout) -> None:
    artifact = put_artifact(layout, b"library")
    layout.remove(artifact)
    assert layout.collect_garbage(roots=[artifact], min_age_s=0).digests == ()


def test_young_blobs_are_kept(layout: OciLayout) -> None:
    young, old = layout.blobs.put_bytes(b"young"), layout.blobs.put_bytes(b"old")
    make_older(layout, young, 0.9 * HOUR_S)
    make_older(layout, old, 1.1 * HOUR_S)
    assert layout.collect_garbage(min_age_s=HOUR_S).digests == (old,)
    assert layout.blobs.exists(young)


def test_storing_an_old_orphan_again_resets_its_age(layout: OciLayout) -> None:
    orphan = layout.blobs.put_bytes(b"orphan")
    make_older(layout, orphan, 2 * HOUR_S)
    layout.blobs.put_bytes(b"orphan")
    assert layout.collect_garbage(min_age_s=HOUR_S).digests == ()


def test_renewing_an_old_orphan_resets_its_age(layout: OciLayout) -> None:
    orphan = layout.blobs.put_bytes(b"orphan")
    make_older(layout, orphan, 2 * HOUR_S)
    assert layout.blobs.renew(orphan) == len(b"orphan")
    assert layout.collect_garbage(min_age_s=HOUR_S).digests == ()


def test_a_file_moved_into_the_store_is_young(layout: OciLayout, tmp_path: Path) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(b"library")
    os.utime(file, (0, 0))
    layout.blobs.put_file(file)
    assert layout.collect_garbage(min_age_s=HOUR_S).digests == ()


def test_an_upload_in_progress_is_not_garbage(layout: OciLayout) -> None:
    with layout.blobs.writer() as writer:
        writer.write(b"half")
        layout.collect_garbage(min_age_s=0)
        writer.write(b" and half")
        digest = writer.commit()
    assert layout.blobs.read(digest) == b"half and half"


@pytest.mark.parametrize("layout", ["folder"], indirect=True)
def test_a_damaged_manifest_does_not_stop_the_collection(layout: OciLayout, caplog: pytest.LogCaptureFixture) -> None:
    damaged = put_artifact(layout, b"library")
    orphan = layout.blobs.put_bytes(b"orphan")
    damage_blob(layout.root, damaged)
    with caplog.at_level(logging.WARNING):
        collected = layout.collect_garbage(min_age_s=0)
    assert orphan in collected.digests
    assert damaged in caplog.text


def test_a_nested_index_is_followed() -> None:
    blobs = MemoryBlobStore()
    leaf = blobs.put_bytes(b"leaf")
    manifest = blobs.put_bytes(json.dumps({"schemaVersion": 2, "config": {"digest": leaf}, "layers": []}).encode())
    nested = blobs.put_bytes(json.dumps({"schemaVersion": 2, "manifests": [{"digest": manifest}]}).encode())
    assert reachable_from(blobs, [nested]) == {nested, manifest, leaf}


def test_digests_of_other_algorithms_are_ignored() -> None:
    blobs = MemoryBlobStore()
    manifest = blobs.put_bytes(json.dumps({"schemaVersion": 2, "config": {"digest": "sha512:00"}}).encode())
    assert reachable_from(blobs, [manifest]) == {manifest}


def test_an_invalid_root_is_not_followed() -> None:
    nonsense = Digest("../../etc/passwd")
    assert reachable_from(MemoryBlobStore(), [nonsense]) == {nonsense}
