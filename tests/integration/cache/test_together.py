"""Several processes use one store at the same time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from service.cache import LocalBlobStore, OciLayout
from service.core.digest import digest_of
from tests.support.child_process import start_process, wait_for_output
from tests.support.store_process import CHUNK

PROCESS = "tests.support.store_process"


def run_together(*commands: tuple[object, ...]) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(start_process(PROCESS, *command)) for command in commands]
        for process in processes:
            wait_for_output(process)


def test_concurrent_writers_of_the_same_blob_agree(tmp_path: Path) -> None:
    run_together(*[("put_same", tmp_path, 20)] * 3)
    store = LocalBlobStore(tmp_path)
    assert list(store.iterate()) == [digest_of(CHUNK)]
    assert store.read(digest_of(CHUNK)) == CHUNK
    assert not list((tmp_path / "uploads").iterdir())


def test_no_change_of_the_index_is_lost(tmp_path: Path) -> None:
    run_together(*[("publish", tmp_path, name, 10) for name in "abc"])
    layout = OciLayout(tmp_path)
    (shared,) = [entry for entry in layout.index() if entry.annotations]
    assert set(shared.annotations) == {f"{name}.{number}" for name in "abc" for number in range(10)}
    published = [entry for entry in layout.index() if entry.artifact_type == "application/vnd.example"]
    assert len(published) == 31
    for entry in published:
        report = layout.attached(entry.digest, "application/vnd.example.report")
        layer = layout.blobs.read(layout.manifest(entry.digest).layers[0].digest)
        assert report == (b"report of " + layer if layer != b"shared" else None)


def test_the_garbage_collector_never_deletes_what_is_listed(tmp_path: Path) -> None:
    publishers = [("publish_in_spite_of_a_collector", tmp_path, name, 30) for name in "ab"]
    run_together(*publishers, ("collect", tmp_path, 60))
    layout = OciLayout(tmp_path)
    assert len(layout.index()) == 60
    for entry in layout.index():
        manifest = layout.manifest(entry.digest)
        for part in (manifest.config, *manifest.layers):
            layout.blobs.read(part.digest)
