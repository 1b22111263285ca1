from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from service.workers.scratch import attempt_directory, sweep

HOLD = """
import sys
from pathlib import Path
from service.workers.scratch import attempt_directory
with attempt_directory(Path(sys.argv[1]), "held") as path:
    (path / "object.o").write_bytes(b"code")
    print(path, flush=True)
    sys.stdin.read()
"""


def test_each_attempt_has_its_own_directory(tmp_path: Path) -> None:
    with attempt_directory(tmp_path / "scratch", "a") as first, attempt_directory(tmp_path / "scratch", "a") as second:
        assert first != second
        assert first.is_dir()
        assert first.stat().st_mode & 0o777 == 0o700


def test_the_directory_is_removed_with_its_contents(tmp_path: Path) -> None:
    with attempt_directory(tmp_path, "a") as path:
        (path / "inner").mkdir()
        (path / "inner" / "file").write_bytes(b"x")
        (path / "inner").chmod(0)
    assert list(tmp_path.iterdir()) == []


def test_the_directory_is_removed_when_the_attempt_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), attempt_directory(tmp_path, "a"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_running_process_is_not_swept(tmp_path: Path) -> None:
    with attempt_directory(tmp_path, "a") as path:
        assert sweep(tmp_path) == 0
        assert path.is_dir()


def test_the_directory_of_a_killed_process_is_swept(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        assert sweep(tmp_path) == 0
        assert (path / "object.o").exists()
        process.kill()
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_files_and_links_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "scratch"
    root.mkdir()
    (root / "file").write_bytes(b"x")
    (root / "link").symlink_to(outside)
    assert sweep(root) == 0
    assert outside.is_dir()
    assert (root / "file").exists()


def test_sweeping_an_empty_or_missing_folder_does_nothing(tmp_path: Path) -> None:
    assert sweep(tmp_path / "none") == 0
