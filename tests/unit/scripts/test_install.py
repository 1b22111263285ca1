"""Tests of the progress that `make` shows while it installs, with the real pip."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from scripts import install


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wheel(folder: Path) -> str:
    """Writes a wheel of one empty module. Returns its requirement, with its digest."""
    name, about = "octet_sample-1.0-py3-none-any.whl", "octet_sample-1.0.dist-info"
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("octet_sample.py", "")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: octet-sample\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return f"octet-sample==1.0 --hash=sha256:{hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n"


def test_the_steps_of_pip_are_shown(tmp_path: Path) -> None:
    requirement = wheel(tmp_path)
    (tmp_path / "sample.lock").write_text(requirement)
    shown = Terminal()
    target = ("--target", str(tmp_path / "target"), "--no-index", "--find-links", str(tmp_path))
    command = [sys.executable, "-m", "pip", "install", *target, "-r", str(tmp_path / "sample.lock")]
    assert install.run(command, install.describe_pip(1), install.Progress(shown)) == 0
    steps = [line.removeprefix("\x1b[K").strip().partition(" ")[2] for line in shown.getvalue().split("\r")]
    assert "downloading 1 of at most 1 packages: octet_sample" in steps
    assert "installing 1 packages" in steps
    assert shown.getvalue().endswith("\r\x1b[K")


def test_the_output_of_a_failed_command_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('the reason'); sys.exit(3)"
    assert install.run([sys.executable, "-c", code], install.describe_ninja, install.Progress(io.StringIO())) == 3
    assert "the reason" in capfd.readouterr().err


def test_a_long_step_shows_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_TICK_S", 0.01)
    shown = Terminal()
    code = "import time; print('[2/80] cc', flush=True); time.sleep(0.2)"
    install.run([sys.executable, "-c", code], install.describe_ninja, install.Progress(shown))
    assert shown.getvalue().count("compiling 2 of 80") > 2


def test_a_log_gets_a_line_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = install.Progress(io.StringIO())
    progress.tick("downloading")
    assert progress._stream.getvalue() == ""  # type: ignore[attr-defined]
    monkeypatch.setattr(install, "_LINE_EVERY_S", 0.0)
    progress.tick("installing")
    assert progress._stream.getvalue() == "  0:00 installing\n"  # type: ignore[attr-defined]


def test_it_needs_only_the_standard_library(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    done = subprocess.run([python, install.__file__, "nothing.lock"], capture_output=True, text=True, timeout=60)
    assert "nothing.lock" in done.stderr
    assert "ModuleNotFoundError" not in done.stderr
