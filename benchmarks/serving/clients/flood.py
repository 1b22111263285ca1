"""Generates loads for which Python is too slow: like `generator`, but by a program in C, in several processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.serving.clients.load import Answer, Load, Outcome

_SOURCE = Path(__file__).with_suffix(".c")
_START_S = 0.2  # The time within which all processes of a load start.
ANYWHERE = -1  # Used instead of a core's number for a process that is not pinned.


class Flood:
    """The load generator `flood.c`, which the constructor compiles in `scratch`.

    Args:
        cores: a core for each process of the generator. The processes share a load; one core sends some 50,000 requests
            a second.
    """

    def __init__(self, cores: Sequence[int], scratch: Path) -> None:
        scratch.mkdir(exist_ok=True)
        self._cores, self._program = list(cores), scratch / "flood"
        self._rows = [scratch / f"flood-{index}.rows" for index in range(len(self._cores))]
        command = [sys.executable, "-m", "ziglang", "cc", "-O2", str(_SOURCE), "-o", str(self._program)]
        subprocess.run(command, check=True)

    def run(self, load: Load) -> Outcome:
        """Generates a load. Raises RuntimeError if that fails."""
        count = min(len(self._cores), load.connections or len(self._cores))
        start_s = time.monotonic() + _START_S
        processes = [
            subprocess.Popen(
                list(map(str, self._command(load, index, count, start_s))),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in range(count)
        ]
        outputs = [process.communicate() for process in processes]
        for process, (_, error) in zip(processes, outputs, strict=True):
            if process.returncode:
                raise RuntimeError(f"the flood ended with {process.returncode}: {error.strip()}")
        rows = np.concatenate([np.fromfile(path).reshape(-1, 4) for path in self._rows[:count]]).tolist()
        answers = [Answer(due_s, latency_s, int(status), bool(right)) for due_s, latency_s, status, right in rows]
        elapsed_s, unsent = zip(*(output.split() for output, _ in outputs), strict=True)
        return Outcome(answers, max(map(float, elapsed_s)), sum(map(int, unsent)))

    def _command(self, load: Load, index: int, count: int, start_s: float) -> Sequence[object]:
        shared = self._program, self._cores[index], index, count, start_s
        settings = load.request, load.expected, self._rows[index], int(load.polls), load.patience_s, load.latest_s
        connections = len(range(index, load.connections, count))
        phases = [number for phase in load.phases for number in (phase.rate, phase.seconds)]
        return [*shared, load.port, *settings, connections, load.warm_up_s, load.seconds, *phases]
