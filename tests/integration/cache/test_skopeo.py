"""Another implementation of the OCI image layout reads Octet's layouts, and Octet reads the layouts that it writes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from service.cache import Descriptor, Manifest, OciLayout
from tests.support.waiting import WORK_TIMEOUT_S

NAME = {"org.opencontainers.image.ref.name": "digits-1"}  # skopeo and oras find an entry by this annotation


@pytest.fixture
def artifact(tmp_path: Path) -> Descriptor:
    layout = OciLayout(tmp_path / "ours")
    config = layout.put_blob_descriptor("application/vnd.octet.config.v1+json", b'{"entry":"main"}')
    library = layout.put_blob_descriptor("application/vnd.octet.library.v1", b"\x7fELF" * 1000)
    manifest = Manifest("application/vnd.octet.artifact.v1", config, (library,), {"dev.octet.target": "x86-64-v3"})
    artifact = layout.put_manifest(manifest, NAME)
    layout.attach(artifact.digest, "application/vnd.octet.numerics.v1+json", b'{"equal":true}')
    return artifact


def skopeo(*arguments: object) -> bytes:
    command = ["skopeo", "--insecure-policy", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, timeout=WORK_TIMEOUT_S).stdout


@pytest.fixture(autouse=True)
def _skopeo_is_installed() -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("NOT TESTED WITH SKOPEO: it is not installed (Debian: apt-get install skopeo)")


def test_skopeo_finds_a_manifest_by_name(tmp_path: Path, artifact: Descriptor) -> None:
    raw = skopeo("inspect", "--raw", f"oci:{tmp_path / 'ours'}:digits-1")
    assert raw == OciLayout.open(tmp_path / "ours").blobs.read(artifact.digest)


def test_octet_opens_a_layout_that_skopeo_copied(tmp_path: Path, artifact: Descriptor) -> None:
    skopeo("copy", f"oci:{tmp_path / 'ours'}:digits-1", f"oci:{tmp_path / 'theirs'}:digits-1")
    theirs = OciLayout.open(tmp_path / "theirs")
    (entry,) = theirs.index()
    assert entry.digest == artifact.digest
    assert entry.annotations == NAME
    assert theirs.blobs.read(theirs.manifest(entry.digest).layers[0].digest) == b"\x7fELF" * 1000
    theirs.attach(entry.digest, "application/vnd.octet.numerics.v1+json", b"{}")
    assert theirs.attached(entry.digest, "application/vnd.octet.numerics.v1+json") == b"{}"
