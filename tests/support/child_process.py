"""Starts real processes that use a store or a database. A test may kill them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import GIVE_UP_S

ROOT = Path(__file__).parents[2]


@contextmanager
def start_process(module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Runs `python -m module arguments…` in a new process, which is killed at the end."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    """Returns the next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_for_output(process: subprocess.Popen[str]) -> list[str]:
    """Waits for the process, which must exit with status 0, and returns the words of its remaining output."""
    output, _ = process.communicate(timeout=GIVE_UP_S)
    assert process.returncode == 0
    return output.split()


def kill_process(process: subprocess.Popen[str]) -> None:
    """Kills the process with SIGKILL, and waits for its end."""
    process.kill()
    process.wait(timeout=GIVE_UP_S)


def is_running(pid: int) -> bool:
    """Returns true if a process exists and is not a zombie. It need not be a child of this process."""
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
