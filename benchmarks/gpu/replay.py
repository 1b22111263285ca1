"""Replays all launches of the kernels' tests in processes that may end or hang; a faulty launch is reported, not
repeated.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.kernels import LAUNCHES_FILE
from benchmarks.gpu.records import Record

# A command and its limit in seconds -> its status, its JSON lines, its last output lines.
Process = Callable[[list[str], float], tuple[int, list[dict[str, Any]], str]]
LATE = -1  # The status of a process that exceeded its time limit.
_TOGETHER, _LIMIT_S = 100, 20.0  # Launches per process; a launch takes some hundredths of a second.
_MOST_SAMPLED = 32


def command(folder: Path, numbers: Sequence[int]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gpu.kernels", str(folder), *map(str, numbers)]


def sample(folder: Path) -> list[int]:
    """Returns the numbers of some launches: the first launch of each module and of each test, up to a maximum
    number."""
    first: dict[str, int] = {}
    for number, launch in enumerate(_launches(folder)):
        first.setdefault(launch["module"], number)
        first.setdefault(launch["test"].partition("[")[0], number)
    return list(dict.fromkeys(sorted(first.values())))[:_MOST_SAMPLED]


def replayed(folder: Path, run: Process, limit_s: float) -> Iterator[Record]:
    """Yields a record for each launch whose output is wrong or missing, and one with the totals."""
    launches, outcomes = _launches(folder), dict[int, str]()
    end_s = time.monotonic() + limit_s
    while (left := [each for each in range(len(launches)) if each not in outcomes]) and time.monotonic() < end_s:
        status, lines, words = run(command(folder, left[:_TOGETHER]), _LIMIT_S)
        outcomes |= {each["number"]: each["said"] for each in lines if "number" in each}
        begun = [each["begun"] for each in lines if "begun" in each]
        if not begun:
            yield {"part": "failure", "of": "the kernels' launches", "said": words}
            break
        # A launch that was in progress when the time ran out may only have been slow. It is repeated, as the first one.
        if begun[-1] not in outcomes and (status != LATE or begun[-1] == left[0]):
            outcomes[begun[-1]] = f"its process ended with it: {words}"
    wrong = {number: words for number, words in outcomes.items() if words}
    for number, words in sorted(wrong.items()):
        test, kernel = launches[number]["test"], launches[number]["kernel"]
        yield {"part": "kernel", "test": test, "kernel": kernel, "said": words}
    counts = {"equal": len(outcomes) - len(wrong), "different": len(wrong), "of": len(launches)}
    yield {"part": "kernels", **counts}


def _launches(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / LAUNCHES_FILE).read_text()))
