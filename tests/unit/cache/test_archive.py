"""Tests of reading tar archives of layouts, which are untrusted."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.cache import Descriptor, Manifest, OciLayout
from service.cache.archive import LayoutArchive
from service.cache.export import export
from service.core.digest import Digest, digest_of
from service.core.errors import DigestMismatch, MalformedModel, NotFound, OctetError

LAYER = b"a layer" * 1000


@pytest.fixture
def layout(tmp_path: Path) -> OciLayout:
    return OciLayout(tmp_path / "layout")


@pytest.fixture
def artifact(layout: OciLayout) -> Digest:
    config, layer = (layout.put_blob_descriptor("application/x", data) for data in (b"{}", LAYER))
    digest = layout.put_manifest(Manifest("application/vnd.example", config, (layer,)), {"a.name": "a:1"}).digest
    for kind in ("application/vnd.example.report", "application/vnd.example.other"):
        layout.attach(digest, kind, b"said")
    return digest


@pytest.fixture
def archive(layout: OciLayout, artifact: Digest, tmp_path: Path) -> Path:
    path = tmp_path / "archive.tar"
    path.write_bytes(b"".join(export(layout, artifact).chunks()))
    return path


def test_an_exported_archive_can_be_read(archive: Path, artifact: Digest, layout: OciLayout, tmp_path: Path) -> None:
    read = LayoutArchive(archive)
    assert read.manifests[0].digest == artifact
    manifest = Manifest.from_bytes(read.read(artifact))
    assert manifest == layout.manifest(artifact)
    read.extract(manifest.layers[0], tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == LAYER


def test_an_archive_written_by_tar_can_be_read(layout: OciLayout, artifact: Digest, tmp_path: Path) -> None:
    for name in ("gnu", "ustar"):
        command = ["tar", f"--format={name}", "-cf", str(tmp_path / name), "-C", str(layout.root)]
        subprocess.run([*command, "./oci-layout", "./index.json", "./blobs"], check=True)
        assert artifact in [entry.digest for entry in LayoutArchive(tmp_path / name).manifests]


def test_only_the_named_reports_are_exported(layout: OciLayout, artifact: Digest, tmp_path: Path) -> None:
    path = tmp_path / "archive.tar"
    path.write_bytes(b"".join(export(layout, artifact, ["application/vnd.example.other"]).chunks()))
    assert [entry.artifact_type for entry in LayoutArchive(path).manifests] == [
        "application/vnd.example",
        "application/vnd.example.other",
    ]


def test_a_damaged_blob_is_refused(archive: Path, artifact: Digest) -> None:
    archive.write_bytes(archive.read_bytes().replace(b'"schemaVersion":2', b'"schemaVersion":3'))
    with pytest.raises(DigestMismatch):
        LayoutArchive(archive).read(artifact)


def test_a_missing_blob_is_not_found(archive: Path, tmp_path: Path) -> None:
    absent = digest_of(b"absent")
    with pytest.raises(NotFound):
        LayoutArchive(archive).read(absent)
    with pytest.raises(NotFound):
        LayoutArchive(archive).extract(Descriptor("application/x", absent, 6), tmp_path / "absent")


def test_a_blob_of_another_size_is_not_written(archive: Path, artifact: Digest, tmp_path: Path) -> None:
    read = LayoutArchive(archive)
    layer = Manifest.from_bytes(read.read(artifact)).layers[0]
    with pytest.raises(MalformedModel, match="7000 bytes, not 6999"):
        read.extract(Descriptor(layer.media_type, layer.digest, 6999), tmp_path / "layer")


def packed(*members: tuple[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda member: None) -> bytes:
    """Returns a tar archive of `members`. `change` may change the header of the last one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for index, (name, data) in enumerate(members, 1):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if index == len(members):
                change(member)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


GOOD = ("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'), ("index.json", b'{"manifests": []}')
BLOB = "blobs/sha256/" + 64 * "a"


def typed(kind: bytes) -> Callable[[tarfile.TarInfo], None]:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = kind, "/etc/passwd", 0

    return change


def test_the_smallest_valid_archive(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(packed(*GOOD))
    assert LayoutArchive(tmp_path / "a").manifests == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no oci-layout"),
        (b"not an archive" * 100, "is not a tar archive"),
        (packed(*GOOD)[:520], "ends in the middle"),
        (packed(*GOOD, ("../../etc/passwd", b"x")), "does not belong to"),
        (packed(*GOOD, ("blobs/sha256/../../../x", b"x")), "does not belong to"),
        (packed(*GOOD, (BLOB, b"x"), change=typed(tarfile.SYMTYPE)), "neither a file nor a folder"),
        (packed(*GOOD, (BLOB, b"x"), change=typed(tarfile.LNKTYPE)), "neither a file nor a folder"),
        (packed(*GOOD, (BLOB, b"x"), change=typed(tarfile.GNUTYPE_SPARSE)), "neither a file nor a folder"),
        (packed(*GOOD, (BLOB, b"x"), change=typed(tarfile.XHDTYPE)), "neither a file nor a folder"),
        (packed(("oci-layout", b'{"imageLayoutVersion": "2"}'), GOOD[1]), "version '2'"),
        (packed(("oci-layout", b"[]"), GOOD[1]), "not contain an OCI image layout"),
        (packed(GOOD[0], ("index.json", b"[" * 100_000)), "not contain an OCI image layout"),
        (packed(GOOD[0], ("index.json", b'{"manifests": [{"digest": "../x"}]}')), "not contain an OCI image layout"),
        (packed(GOOD[0], ("index.json", b"x" * (5 << 20))), "5242880 bytes"),
        (packed(*GOOD, *((f"blobs/sha256/{n:064x}", b"") for n in range(4100))), "more than 4096"),
    ],
)
def test_invalid_archives_are_refused(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises((MalformedModel, NotFound), match=says):
        LayoutArchive(tmp_path / "a")


def test_a_header_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    data = bytearray(packed(*GOOD))
    data[124] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(MalformedModel, match="damaged"):
        LayoutArchive(tmp_path / "a")


@settings(max_examples=200, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 255)), min_size=1, max_size=20))
def test_changed_archives_are_read_or_refused(
    changes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = b"{}"
    entry = Descriptor("application/x", digest_of(config), len(config)).to_json()
    index = json.dumps({"manifests": [entry]}).encode()
    data = bytearray(packed(GOOD[0], ("index.json", index), (f"blobs/sha256/{digest_of(config)[7:]}", config)))
    for position, value in changes:
        data[position % len(data)] = value
    path = tmp_path_factory.mktemp("changed") / "a"
    path.write_bytes(data)
    try:
        archive = LayoutArchive(path)
        for listed in archive.manifests:
            archive.read(listed.digest)
    except OctetError:
        pass
