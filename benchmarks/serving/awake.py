"""A core that does not halt, for clients that cannot poll: gRPC's sleep in a library.

python -m benchmarks.serving.awake CORE    # computes nothing whenever no other process needs the core
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from benchmarks.places import CHECKOUT
from benchmarks.serving.processes import end_with_parent


def main() -> None:
    end_with_parent()
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # who is woken on the core has it at once
    print(flush=True)
    while True:
        pass


class Awake:
    """While it is entered, the core is kept from halting. A context manager, more than once."""

    def __init__(self, core: int) -> None:
        command = [sys.executable, "-m", "benchmarks.serving.awake", str(core)]
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
