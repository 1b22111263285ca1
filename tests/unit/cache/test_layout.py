"""Tests of layouts: manifests, the index and referrers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from service.cache import EMPTY_MEDIA_TYPE, MANIFEST_MEDIA_TYPE, Descriptor, Manifest, OciLayout
from service.cache.oci import LARGEST_MANIFEST_BYTES
from service.core.digest import digest_of
from service.core.errors import CorruptBlob, InvalidInput, NotFound
from tests.support.blobs import damage_blob

ARTIFACT = "application/vnd.example.artifact"
REPORT = "application/vnd.example.report+json"
of_a_folder = pytest.mark.parametrize("layout", ["folder"], indirect=True)
OTHER_REPORT = "application/vnd.example.other+json"


def put_artifact(layout: OciLayout, library: bytes = b"library") -> Descriptor:
    config = layout.put_blob_descriptor("application/vnd.example.config+json", b'{"entry":"main"}')
    layer = layout.put_blob_descriptor("application/vnd.example.library", library)
    return layout.put_manifest(Manifest(ARTIFACT, config, (layer,), {"org.example.made-for": "a test"}))


def index_json(layout: OciLayout) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((layout.root / "index.json").read_bytes())
    return document


def test_a_new_layout_follows_the_specification(layout: OciLayout) -> None:
    assert json.loads((layout.root / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    assert index_json(layout) == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [],
    }


def test_a_manifest_survives_a_round_trip(layout: OciLayout) -> None:
    descriptor = put_artifact(layout)
    manifest = layout.manifest(descriptor.digest)
    assert manifest.artifact_type == ARTIFACT
    assert layout.blobs.read(manifest.layers[0].digest) == b"library"
    assert manifest.annotations == {"org.example.made-for": "a test"}


def test_a_manifest_follows_the_specification(layout: OciLayout) -> None:
    descriptor = put_artifact(layout)
    document = json.loads(layout.blobs.read(descriptor.digest))
    assert document["schemaVersion"] == 2
    assert document["mediaType"] == MANIFEST_MEDIA_TYPE
    assert document["layers"] == [
        {"mediaType": "application/vnd.example.library", "digest": digest_of(b"library"), "size": 7}
    ]


def test_equal_manifests_have_equal_digests_and_one_entry(layout: OciLayout, tmp_path: Path) -> None:
    digest = put_artifact(layout).digest
    assert put_artifact(layout).digest == digest
    assert put_artifact(OciLayout(tmp_path / "other")).digest == digest
    assert len(layout.index()) == 1


def test_a_file_becomes_a_layer(layout: OciLayout, tmp_path: Path) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(b"library")
    assert layout.put_blob_descriptor("application/x", file) == Descriptor("application/x", digest_of(b"library"), 7)


def test_a_manifest_of_blobs_that_are_not_stored_is_refused(layout: OciLayout) -> None:
    config = layout.put_blob_descriptor("application/json", b"{}")
    with pytest.raises(NotFound, match=digest_of(b"gone")):
        layout.put_manifest(Manifest(ARTIFACT, config, (Descriptor("application/x", digest_of(b"gone"), 4),)))
    assert layout.index() == []


def test_annotations_are_merged_into_the_entry_and_not_into_the_manifest(layout: OciLayout) -> None:
    digest = put_artifact(layout).digest
    layout.annotate(digest, {"a": "1", "b": "1"})
    layout.annotate(digest, {"b": "2"})
    put_artifact(layout)
    assert [entry.annotations for entry in layout.index()] == [{"a": "1", "b": "2"}]
    with pytest.raises(NotFound):
        layout.annotate(digest_of(b"other"), {"a": "1"})


@of_a_folder
def test_members_of_other_tools_in_the_index_are_kept(layout: OciLayout) -> None:
    digest = put_artifact(layout).digest
    document = index_json(layout)
    document["annotations"] = {"org.example.owner": "them"}
    document["manifests"][0]["platform"] = {"os": "linux", "architecture": "amd64"}
    (layout.root / "index.json").write_text(json.dumps(document))
    layout.annotate(digest, {"a": "1"})
    document["manifests"][0]["annotations"] = {"a": "1"}
    assert index_json(layout) == document


def test_a_report_is_found_by_its_subject(layout: OciLayout) -> None:
    subject, other = put_artifact(layout), put_artifact(layout, b"other")
    referrer = layout.attach(subject.digest, REPORT, b'{"equal":true}')
    assert layout.attached(subject.digest, REPORT) == b'{"equal":true}'
    assert layout.attached(subject.digest, OTHER_REPORT) is None
    assert layout.attached(other.digest, REPORT) is None
    assert [descriptor.digest for descriptor in layout.referrers(subject.digest)] == [referrer]
    assert layout.referrers(other.digest) == []


def test_a_report_is_a_manifest_with_a_subject(layout: OciLayout) -> None:
    subject = put_artifact(layout)
    referrer = layout.manifest(layout.attach(subject.digest, REPORT, b"{}", {"a": "1"}))
    assert referrer.subject == Descriptor(MANIFEST_MEDIA_TYPE, subject.digest, subject.size_bytes)
    assert (referrer.config.media_type, layout.blobs.read(referrer.config.digest)) == (EMPTY_MEDIA_TYPE, b"{}")
    assert referrer.annotations == {"a": "1"}


def test_a_newer_report_replaces_the_older(layout: OciLayout) -> None:
    subject = put_artifact(layout).digest
    layout.attach(subject, REPORT, b"old")
    layout.attach(subject, OTHER_REPORT, b"kept")
    layout.attach(subject, REPORT, b"new")
    assert layout.attached(subject, REPORT) == b"new"
    assert layout.attached(subject, OTHER_REPORT) == b"kept"
    assert len(layout.index()) == 3


def test_a_report_about_an_unlisted_manifest_is_refused(layout: OciLayout) -> None:
    with pytest.raises(NotFound):
        layout.attach(digest_of(b"nothing"), REPORT, b"{}")


def test_a_damaged_report_does_not_hide_others(layout: OciLayout, caplog: pytest.LogCaptureFixture) -> None:
    damaged, whole = put_artifact(layout).digest, put_artifact(layout, b"other").digest
    report = layout.attach(damaged, REPORT, b"{}")
    layout.attach(whole, REPORT, b"whole")
    damage_blob(layout.root, report)
    reopened = OciLayout(layout.root)
    with caplog.at_level(logging.WARNING):
        assert reopened.attached(damaged, REPORT) is None
    assert report in caplog.text
    assert reopened.attached(whole, REPORT) == b"whole"


@of_a_folder
def test_a_report_whose_bytes_are_damaged_is_an_error(layout: OciLayout) -> None:
    subject = put_artifact(layout).digest
    layout.attach(subject, REPORT, b"report")
    damage_blob(layout.root, digest_of(b"report"))
    with pytest.raises(CorruptBlob):
        layout.attached(subject, REPORT)


def test_removing_a_manifest_removes_its_reports(layout: OciLayout) -> None:
    removed, kept = put_artifact(layout).digest, put_artifact(layout, b"other").digest
    report = layout.attach(removed, REPORT, b"{}")
    layout.attach(report, OTHER_REPORT, b"about the report")
    layout.remove(removed)
    layout.remove(removed)
    assert [entry.digest for entry in layout.index()] == [kept]


def test_a_layout_can_be_opened_again(layout: OciLayout) -> None:
    digest = put_artifact(layout).digest
    for again in (OciLayout(layout.root), OciLayout.open(layout.root)):
        assert [entry.digest for entry in again.index()] == [digest]


def test_reading_a_layout_that_must_exist_changes_nothing_in_it(layout: OciLayout) -> None:
    digest = put_artifact(layout).digest
    layout.attach(digest, REPORT, b"{}")
    (layout.root / "uploads" / "of-somebody-else").write_bytes(b"")
    before = {path: path.stat().st_mtime_ns for path in layout.root.rglob("*")}
    opened = OciLayout.open(layout.root)
    opened.blobs.path(opened.manifest(digest).config.digest)
    assert opened.attached(digest, REPORT) == b"{}"
    assert {path: path.stat().st_mtime_ns for path in layout.root.rglob("*")} == before


def test_opening_a_folder_without_a_layout_creates_nothing(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "absent"):
        with pytest.raises(NotFound):
            OciLayout.open(root)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("marker", ["{", "[]", "{}", '{"imageLayoutVersion": "9.0"}'])
def test_a_layout_of_another_version_is_refused(layout: OciLayout, marker: str) -> None:
    (layout.root / "oci-layout").write_text(marker)
    with pytest.raises(InvalidInput):
        OciLayout(layout.root)


@pytest.mark.parametrize(
    "index",
    [
        None,
        "",
        "{",
        "[]",
        "{}",
        '{"manifests": {}}',
        '{"manifests": [{}]}',
        '{"manifests": [7]}',
        '{"manifests": null}',
    ],
)
@of_a_folder
def test_a_lost_index_is_reported_and_not_recreated(layout: OciLayout, index: str | None) -> None:
    path = layout.root / "index.json"
    path.unlink() if index is None else path.write_text(index)
    with pytest.raises(CorruptBlob):
        OciLayout(layout.root)
    with pytest.raises(CorruptBlob):
        layout.index()


def test_an_unchanged_index_is_not_written(layout: OciLayout) -> None:
    digest = put_artifact(layout).digest
    layout.annotate(digest, {"a": "1"})
    inode = (layout.root / "index.json").stat().st_ino
    layout.annotate(digest, {"a": "1"})
    put_artifact(layout)
    assert (layout.root / "index.json").stat().st_ino == inode


def test_leftovers_of_a_killed_process_are_removed(layout: OciLayout) -> None:
    left = layout.root / ".index.json.0123"
    left.write_text("{")
    put_artifact(layout)
    assert not left.exists()


def test_a_blob_too_large_for_a_manifest_is_not_read(layout: OciLayout) -> None:
    largest = layout.blobs.put_bytes(b" " * LARGEST_MANIFEST_BYTES)
    with pytest.raises(InvalidInput, match="not JSON"):
        layout.manifest(largest)
    larger = layout.blobs.put_bytes(b" " * (LARGEST_MANIFEST_BYTES + 1))
    with pytest.raises(InvalidInput, match=f"blob {larger} has 4194305 bytes, but a manifest has at most 4194304"):
        layout.manifest(larger)
