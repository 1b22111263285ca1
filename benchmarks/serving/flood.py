"""Loads that Python is too slow to make: the same as `generator`'s, by a program in C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.serving.load import Answer, Load, Outcome

_SOURCE = Path(__file__).with_suffix(".c")
ANYWHERE = -1  # as a core


class Flood:
    """Compiled once, in `scratch`."""

    def __init__(self, core: int, scratch: Path) -> None:
        scratch.mkdir(exist_ok=True)
        self._core, self._program, self._rows = core, scratch / f"flood-{core}", scratch / f"flood-{core}.rows"
        command = [sys.executable, "-m", "ziglang", "cc", "-O2", str(_SOURCE), "-o", str(self._program)]
        subprocess.run(command, check=True)

    def run(self, load: Load) -> Outcome:
        """Raises RuntimeError if the load cannot be made."""
        settings = load.request, load.expected, self._rows, int(load.polls), load.patience_s, load.latest_s
        closed = load.connections, load.warm_up_s, load.seconds
        phases = [number for phase in load.phases for number in (phase.rate, phase.seconds)]
        command = [self._program, self._core, load.port, *settings, *closed, *phases]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the flood ended with {done.returncode}: {done.stderr.strip()}")
        rows = np.fromfile(self._rows).reshape(-1, 4).tolist()
        answers = [Answer(due_s, latency_s, int(status), bool(right)) for due_s, latency_s, status, right in rows]
        elapsed_s, unsent = done.stdout.split()
        return Outcome(answers, float(elapsed_s), int(unsent))
