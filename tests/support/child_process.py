"""Real processes that do something to a store or a database, and that a test may kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import GIVE_UP_S

ROOT = Path(__file__).parents[2]


@contextmanager
def started(module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`python -m module arguments…` in its own process, which is gone afterwards."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    """The next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finished(process: subprocess.Popen[str]) -> list[str]:
    """The lines that the process prints until it ends, which it must do well."""
    output, _ = process.communicate(timeout=GIVE_UP_S)
    assert process.returncode == 0
    return output.split()


def killed(process: subprocess.Popen[str]) -> None:
    """kill -9, and nothing of it is left."""
    process.kill()
    process.wait(timeout=GIVE_UP_S)


def is_running(pid: int) -> bool:
    """Whether a process, ours or not, still does anything: one that only waits to be buried does not."""
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
