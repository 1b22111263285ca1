"""Keeps a core from halting, for clients that cannot poll, such as gRPC's library, which sleeps while it waits.

python -m benchmarks.serving.clients.awake CORE    # loops without end whenever no other process needs the core
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.machine import end_with_parent


def main() -> None:
    end_with_parent()
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # other processes on the core take precedence at once
    print(flush=True)
    while True:
        pass


class Awake:
    """A reusable context manager that keeps a core from halting while its block runs."""

    def __init__(self, core: int) -> None:
        command = [sys.executable, "-m", "benchmarks.serving.clients.awake", str(core)]
        self._process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE)
        assert self._process.stdout
        self._process.stdout.readline()
        self._process.send_signal(signal.SIGSTOP)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    main()
