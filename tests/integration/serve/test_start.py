"""`octet serve` is stopped while it is starting."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.db import Database, WorkerStore
from tests.support.child_process import is_running
from tests.support.serving import children_of, command, environment
from tests.support.waiting import WORK_TIMEOUT_S, eventually


def catches(pid: int, number: int) -> bool:
    """Returns true if a process handles a signal, according to the kernel."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> (number - 1) & 1)


@contextmanager
def starting(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A server that has just begun to start."""
    with subprocess.Popen(
        [*command(folder), *options], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            eventually(lambda: catches(process.pid, signal.SIGTERM))
            yield process
        finally:
            process.kill()


def ends_well(process: subprocess.Popen[str]) -> bool:
    output, stderr = process.communicate(timeout=WORK_TIMEOUT_S)
    assert "Traceback" not in stderr, stderr
    quicker = bool(output) and "url" in json.loads(output.splitlines()[0])  # the server ran before the signal arrived
    return process.returncode == 0 and (not output or quicker)


# How far the start has progressed when the signal arrives: from the first line of the log to the last line before
# requests are accepted.
MOMENTS: dict[str, Callable[[Path], bool]] = {
    "at once": lambda folder: True,
    "with a database": lambda folder: (folder / "data" / "octet.sqlite3").exists(),
    "with a store": lambda folder: (folder / "data" / "store" / "index.json").exists(),
}


@pytest.mark.parametrize(
    ("moment", "number"),
    [("at once", signal.SIGTERM), ("with a database", signal.SIGINT), ("with a store", signal.SIGTERM)],
)
def test_a_server_that_is_stopped_while_it_starts_ends_cleanly(tmp_path: Path, moment: str, number: int) -> None:
    with starting(tmp_path) as process:
        eventually(lambda: MOMENTS[moment](tmp_path))
        process.send_signal(number)
        assert ends_well(process)


@pytest.mark.parametrize("after_s", [0.3, 0.7, 1.1])
def test_it_leaves_nothing_half_started(tmp_path: Path, after_s: float) -> None:
    with starting(tmp_path) as process:
        time.sleep(after_s)
        children = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=WORK_TIMEOUT_S)
        assert process.returncode == 0, stderr
        assert "Traceback" not in stderr
    eventually(lambda: not any(map(is_running, children)))
    file = tmp_path / "data" / "octet.sqlite3"
    if file.exists():
        database = Database(f"sqlite:///{file}")
        database.migrate()
        assert WorkerStore(database).list(within_s=60) == []
        database.close()
