"""Records the resources of a server's processes over time, and checks whether they grow."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from benchmarks.harness.machine import tree
from benchmarks.harness.server import Server

_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
_BLOCKS = 12
_DATA_PLANE = "octet-plane"  # The name of the data plane's program.
_STUDENT_T = 2.228  # Two-sided, 95 %, ten degrees of freedom: a line through twelve points.
SUPERVISOR, CONTROL, PLANE = "supervisor", "control plane", "data plane"
COMPILER, CHILDREN = "compile worker", "its compiling children"


@dataclass
class Watch:
    """Samples of a server's processes.

    Attributes:
        rss_mib: by process, a value for each sample. Those of the compile worker's children are added up.
        restarts: how often a process was replaced by another.
    """

    server: Server
    client: httpx.Client
    rss_mib: dict[str, list[float]] = field(default_factory=dict)
    restarts: int = 0
    _pids: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        kinds = {int(each["pid"]): each["kind"] for each in self.client.get("/api/v1/workers").json()["workers"]}
        pids = {SUPERVISOR: self.server.pid}
        for pid in _children(self.server.pid):
            if pid in kinds:
                pids[COMPILER if kinds[pid] == "compile" else CONTROL] = pid
            elif _program(pid) == _DATA_PLANE:
                pids[PLANE] = pid
        self.restarts += sum(self._pids.get(role, pid) != pid for role, pid in pids.items())
        self._pids |= pids
        for role, pid in pids.items():
            self.rss_mib.setdefault(role, []).append(rss_mib(pid))
        children = set(tree(self.server.pid)) - set(pids.values())
        self.rss_mib.setdefault(CHILDREN, []).append(sum(map(rss_mib, children)))


def rss_mib(pid: int) -> float:
    """Returns the resident set; 0 for a process that has ended."""
    with suppress(OSError):
        return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MIB, 2)
    return 0.0


def _children(pid: int) -> list[int]:
    return [child for child in tree(pid) if _parent(child) == pid]


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def slope_of(values: Sequence[float], step: float) -> tuple[float, float]:
    """Returns slope and standard error of the least-squares line through values `step` apart; NaN below three."""
    if len(values) < 3:
        return math.nan, math.nan
    x = step * np.arange(len(values))
    centered = x - x.mean()
    slope = float(centered @ np.asarray(values) / (centered @ centered))
    residuals = np.asarray(values) - np.mean(values) - slope * centered
    variance = float(residuals @ residuals) / (len(values) - 2)
    return slope, math.sqrt(variance / float(centered @ centered))


def growth_of(values: Sequence[float], step: float) -> list[float]:
    """Returns the slope of the second half and the ends of its 95 % confidence interval; NaN for fewer than 23 values.

    A resident set changes in steps that last, so samples are not independent of each other. The line therefore goes
    through the means of twelve blocks.
    """
    half = values[len(values) // 2 :]
    each = len(half) // _BLOCKS
    if not each:
        return [math.nan] * 3
    blocks = np.asarray(half[len(half) - each * _BLOCKS :]).reshape(_BLOCKS, each).mean(axis=1)
    slope, error = slope_of(blocks.tolist(), step * each)
    return [slope, slope - _STUDENT_T * error, slope + _STUDENT_T * error]
