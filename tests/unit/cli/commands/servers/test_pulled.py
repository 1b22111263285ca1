"""Tests that pulled folders are deleted if no process serves them."""

from __future__ import annotations

import os
from pathlib import Path

from service.cli.commands.servers import pulled

OLD, NEW, OTHER = ("0" * 64, "1" * 64, "2" * 64)


def pull(root: Path, reference: str, digest: str, size_bytes: int = 100, used_s: int = 0) -> Path:
    """Creates a folder like `served_folder` for a process that has ended."""
    folder = root / reference / digest
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "one").write_bytes(bytes(size_bytes))
    pulled._set_link(root / reference / "model", folder)
    lock = folder.with_name(f"{digest}.lock")
    lock.touch()
    os.utime(lock, (used_s, used_s))
    return folder


def test_a_superseded_artifact_is_deleted(tmp_path: Path) -> None:
    old, new = pull(tmp_path, "a", OLD), pull(tmp_path, "a", NEW)
    cut_off = tmp_path / "a" / f"{OTHER}.partial"
    cut_off.mkdir()
    pulled.collect(tmp_path, 1 << 20)
    assert not old.exists()
    assert not cut_off.exists()
    assert (tmp_path / "a" / "model" / "blobs" / "one").exists()
    assert {each.name for each in (tmp_path / "a").iterdir()} == {"model", new.name, f"{NEW}.lock"}


def test_an_artifact_in_use_is_kept(tmp_path: Path) -> None:
    old, cut_off = pull(tmp_path, "a", OLD), tmp_path / "a" / f"{OTHER}.partial"
    cut_off.mkdir()
    pulled._lock_for_life(old)
    pulled._lock_for_life(tmp_path / "a" / OTHER)  # a pull is in progress
    try:
        pull(tmp_path, "a", NEW)
        pulled.collect(tmp_path, 0)
        assert old.exists()
        assert cut_off.exists()
    finally:
        for _ in range(2):
            os.close(pulled._locks.pop())
    pulled.collect(tmp_path, 0)
    assert not old.exists()
    assert not cut_off.exists()


def test_over_the_limit_the_least_recently_served_artifact_is_deleted_completely(tmp_path: Path) -> None:
    first = pull(tmp_path, "a", OLD, used_s=1000)
    last = pull(tmp_path, "b", NEW, used_s=3000)
    middle = pull(tmp_path, "c", OTHER, used_s=2000)
    pulled.collect(tmp_path, 200)
    assert not first.parent.exists()
    assert middle.exists()
    pulled.collect(tmp_path, 199)
    assert not middle.parent.exists()
    assert last.exists()


def test_a_lock_deleted_in_the_meantime_is_taken_again(tmp_path: Path) -> None:
    """If the lock were not taken again, the process would hold a lock on a deleted file."""
    folder = pull(tmp_path, "a", OLD)
    lock = folder.with_name(f"{OLD}.lock")
    real, calls = os.open, []

    def open_and_delete(path: Path, *rest: int) -> int:
        descriptor = real(path, *rest)
        calls.append(path)
        if len(calls) == 1:
            lock.unlink()
        return descriptor

    os.open = open_and_delete  # type: ignore[assignment]
    try:
        pulled._lock_for_life(folder)
    finally:
        os.open = real
    assert len(calls) == 2
    assert os.fstat(pulled._locks.pop()).st_ino == lock.stat().st_ino
