"""The state of a store after its process was killed with SIGKILL."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from service.cache import LocalBlobStore, Manifest, OciLayout
from service.core.digest import Digest
from tests.support.child_process import kill_process, read_line, start_process

PROCESS = "tests.support.store_process"


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def manifest_in(layout: OciLayout) -> Digest:
    config = layout.put_blob_descriptor("application/vnd.example.config", b"{}")
    return layout.put_manifest(Manifest("application/vnd.example", config, (config,))).digest


def test_a_kill_during_a_write_leaves_no_blob_and_the_rest_is_swept(tmp_path: Path) -> None:
    with start_process(PROCESS, "write_half", tmp_path) as process:
        assert read_line(process) == "halfway"
        LocalBlobStore(tmp_path)
        assert len(names(tmp_path / "uploads")) == 1, "the file of a running process must be kept"
        kill_process(process)
    assert names(tmp_path / "blobs" / "sha256") == []
    assert len(names(tmp_path / "uploads")) == 1
    LocalBlobStore(tmp_path)
    assert names(tmp_path / "uploads") == []


@pytest.mark.parametrize("after_s", [0.0, 0.003, 0.011, 0.027])
def test_after_a_kill_at_any_time_every_blob_is_complete(tmp_path: Path, after_s: float) -> None:
    with start_process(PROCESS, "put_forever", tmp_path) as process:
        assert read_line(process) == "begun"
        time.sleep(after_s)
        kill_process(process)
    store = LocalBlobStore(tmp_path)
    digests = list(store.iterate())
    assert digests
    for digest in digests:
        store.read(digest)
    assert names(tmp_path / "uploads") == []


@pytest.mark.parametrize("after_s", [0.0, 0.003, 0.011, 0.027])
def test_after_a_kill_at_any_time_the_index_is_complete_and_unlocked(tmp_path: Path, after_s: float) -> None:
    digest = manifest_in(OciLayout(tmp_path))
    with start_process(PROCESS, "annotate_forever", tmp_path, digest) as process:
        assert read_line(process) == "begun"
        time.sleep(after_s)
        kill_process(process)
    layout = OciLayout(tmp_path)
    (entry,) = layout.index()
    assert int(entry.annotations["number"]) >= 0
    layout.annotate(digest, {"after": "the kill"})
    assert {"blobs", "index.json", "oci-layout", "uploads"} == set(names(tmp_path))
