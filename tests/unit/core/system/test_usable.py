"""Tests of the error messages for data directories that cannot be written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from service.core.errors import DataUnusable
from service.core.system.usable import check_writable, unusable


def test_a_missing_folder_is_created_and_stays_empty(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_instead_of_the_folder_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataUnusable, match="cannot be used: ") as raised:
        check_writable(file)
    assert "a file is where the folder should be" in (raised.value.hint or "")


def test_a_read_only_file_system_is_reported(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with pytest.raises(DataUnusable, match="Read-only file system") as raised:
            check_writable(tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
    assert "mounted read-only" in (raised.value.hint or "")


def test_the_owner_is_named(tmp_path: Path) -> None:
    error = unusable(tmp_path / "gone", PermissionError(13, "Permission denied"))
    assert f"{tmp_path} belongs to " in (error.hint or "")
    assert "this process runs as " in (error.hint or "")


def test_a_full_disk_passes(tmp_path: Path) -> None:
    options = "size=4096,nr_inodes=2"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (tmp_path / "ballast").touch()
        with pytest.raises(OSError, match=os.strerror(28)):
            (tmp_path / "more").touch()
        check_writable(tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
