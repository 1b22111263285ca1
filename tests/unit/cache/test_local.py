"""Tests of the local store beyond the common contract: files, locks and crashes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from service.cache import LocalBlobStore, local
from service.core.digest import Digest, digest_of
from service.core.errors import CorruptBlob, InvalidInput, StorageFull
from tests.support.blobs import blob_file, damage_blob

DATA = b"some bytes that are stored"


@pytest.fixture
def store(tmp_path: Path) -> LocalBlobStore:
    return LocalBlobStore(tmp_path / "store")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_a_blob_is_a_read_only_file_named_by_its_digest(store: LocalBlobStore) -> None:
    digest = store.put_bytes(DATA)
    assert store.path(digest) == blob_file(store.root, digest)
    assert store.path(digest).stat().st_mode & 0o777 == 0o444


def test_uploads_are_not_among_the_blobs(store: LocalBlobStore) -> None:
    with store.writer() as writer:
        writer.write(DATA)
        assert names(store.root / "blobs" / "sha256") == []
        assert len(names(store.root / "uploads")) == 1
        writer.commit()
    assert names(store.root / "uploads") == []


def test_opening_the_store_keeps_active_uploads(store: LocalBlobStore) -> None:
    with store.writer() as writer:
        writer.write(DATA)
        LocalBlobStore(store.root)
        writer.commit()
    assert store.read(digest_of(DATA)) == DATA


def test_opening_the_store_removes_abandoned_uploads(store: LocalBlobStore) -> None:
    (store.root / "uploads").mkdir()
    (store.root / "uploads" / "left-by-a-killed-process").write_bytes(DATA)
    LocalBlobStore(store.root)
    assert names(store.root / "uploads") == []


def test_a_file_on_the_same_file_system_is_renamed_not_copied(store: LocalBlobStore, tmp_path: Path) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(DATA)
    inode = file.stat().st_ino
    assert store.path(store.put_file(file)).stat().st_ino == inode


def test_a_file_with_a_second_name_is_copied(store: LocalBlobStore, tmp_path: Path) -> None:
    file, other_name = tmp_path / "library.so", tmp_path / "other"
    file.write_bytes(DATA)
    other_name.hardlink_to(file)
    digest = store.put_file(file)
    other_name.write_bytes(b"changed behind our back")
    assert store.read(digest) == DATA
    assert not file.exists()


def test_a_file_on_another_file_system_is_copied(store: LocalBlobStore) -> None:
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir() or shared_memory.stat().st_dev == store.root.stat().st_dev:
        pytest.skip("there is no second file system here to copy from")
    file = shared_memory / f"octet-test-{os.getpid()}"
    file.write_bytes(DATA)
    assert store.read(store.put_file(file)) == DATA
    assert not file.exists()


def test_a_pipe_or_a_socket_is_refused_without_waiting_for_it(store: LocalBlobStore, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidInput):
        store.put_file(pipe)


def test_damaged_blobs_are_kept_in_quarantine(store: LocalBlobStore) -> None:
    digest = store.put_bytes(DATA)
    damage_blob(store.root, digest)
    with pytest.raises(CorruptBlob):
        store.read(digest)
    (name,) = names(store.root / "quarantine")
    assert name.startswith(digest.removeprefix("sha256:"))


def test_a_blob_that_was_replaced_meanwhile_is_not_quarantined(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = store.put_bytes(DATA)
    damage_blob(store.root, digest)

    def slowly(data: bytes) -> Digest:
        LocalBlobStore(store.root).put_bytes(DATA)
        return digest_of(data)

    monkeypatch.setattr(local, "digest_of", slowly)
    with pytest.raises(CorruptBlob):
        store.read(digest)
    assert store.read(digest) == DATA


def test_a_truncated_blob_is_damaged(store: LocalBlobStore) -> None:
    digest = store.put_bytes(DATA)
    path = blob_file(store.root, digest)
    path.chmod(0o644)
    os.truncate(path, 3)
    with pytest.raises(CorruptBlob):
        store.path(digest)


def test_damage_after_the_first_check_is_noticed(store: LocalBlobStore) -> None:
    digest = store.put_bytes(DATA)
    before = store.path(digest).stat()
    damage_blob(store.root, digest)
    os.utime(blob_file(store.root, digest), ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(CorruptBlob):
        store.path(digest)


def test_a_file_is_hashed_once_per_process(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store.put_bytes(DATA)
    store.path(digest)
    monkeypatch.setattr(os, "pread", lambda *arguments: pytest.fail("the file was read again"))
    store.path(digest)


def test_renewing_a_blob_does_not_hash_it_again(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store.put_bytes(DATA)
    store.path(digest)
    store.renew(digest)
    monkeypatch.setattr(os, "pread", lambda *arguments: pytest.fail("the file was read again"))
    store.path(digest)


def test_a_blob_that_is_put_again_stays_the_same_file(store: LocalBlobStore, tmp_path: Path) -> None:
    digest = store.put_bytes(DATA)
    before = store.path(digest).stat().st_ino
    store.put_bytes(DATA)
    file = tmp_path / "file"
    file.write_bytes(DATA)
    store.put_file(file)
    assert store.path(digest).stat().st_ino == before
    assert names(store.root / "uploads") == []


def test_damage_is_not_hidden_by_renewing(store: LocalBlobStore) -> None:
    digest = store.put_bytes(DATA)
    store.path(digest)
    damage_blob(store.root, digest)
    store.renew(digest)
    with pytest.raises(CorruptBlob):
        store.path(digest)


def test_other_files_among_the_blobs_are_not_blobs(store: LocalBlobStore) -> None:
    (store.root / "blobs" / "sha256" / ".nfs0001").write_bytes(DATA)
    assert list(store.iterate()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_has_its_own_error_and_keeps_nothing(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)  # with delayed allocation, a full disk is reported here
    with pytest.raises(StorageFull):
        store.put_bytes(DATA)
    assert list(store.iterate()) == []
    assert names(store.root / "uploads") == []


def test_a_store_that_must_exist_is_not_created(tmp_path: Path) -> None:
    LocalBlobStore(tmp_path / "absent", create=False)
    assert names(tmp_path) == []


def test_a_damaged_blob_on_a_read_only_disk_is_refused(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store.put_bytes(DATA)
    damage_blob(store.root, digest)

    def refuse(path: Path, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    for _ in range(2):
        with pytest.raises(CorruptBlob, match="cannot be moved away"):
            store.read(digest)
