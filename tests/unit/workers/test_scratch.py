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


def test_an_attempt_has_a_directory_of_its_own(tmp_path: Path) -> None:
    with attempt_directory(tmp_path / "scratch", "a") as first, attempt_directory(tmp_path / "scratch", "a") as second:
        assert first != second
        assert first.is_dir()
        assert first.stat().st_mode & 0o777 == 0o700


def test_it_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    with attempt_directory(tmp_path, "a") as path:
        (path / "inner").mkdir()
        (path / "inner" / "file").write_bytes(b"x")
        (path / "inner").chmod(0)
    assert list(tmp_path.iterdir()) == []


def test_it_is_removed_when_the_attempt_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), attempt_directory(tmp_path, "a"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_a_living_process_uses_is_not_swept(tmp_path: Path) -> None:
    with attempt_directory(tmp_path, "a") as path:
        assert sweep(tmp_path) == 0
        assert path.is_dir()


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
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


def test_there_may_be_nothing_to_sweep(tmp_path: Path) -> None:
    assert sweep(tmp_path / "none") == 0
