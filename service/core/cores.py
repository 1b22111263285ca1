"""The cores that this process may use, by its mask, and how many of them the quota of its control group pays for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

Core = frozenset[int]  # the processors, by number, that share what computes

_CPUS = Path("/sys/devices/system/cpu")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_ENOUGH = 4  # cores, to leave half of them to predictions alone


def usable_cores() -> tuple[Core, ...]:
    """Each core that this thread may use."""
    return cores_of(os.sched_getaffinity(0))


def computing_cores() -> tuple[Core, ...]:
    """Those of them that predictions compute on: `fast_cores`."""
    return fast_cores(usable_cores())


def fast_cores(cores: Sequence[Core], topology: Path = _CPUS) -> tuple[Core, ...]:
    """Of `cores` as many of the fastest as compute most together; all where the kernel does not say how fast they are.

    A layer waits for its last thread, so n cores count as n of the slowest among them: four of capacity 1024 and four
    of 446 as 8 x 446, less than the four alone. Where two numbers come out equal, the larger is taken.
    """
    capacity = {core: _capacity(core, topology) for core in cores}
    fastest = sorted(capacity.values(), reverse=True)
    count = max(range(1, len(fastest) + 1), key=lambda n: (n * fastest[n - 1], n))
    return tuple(core for core in cores if capacity[core] >= fastest[count - 1])


def _capacity(core: Core, topology: Path) -> int:
    """What the kernel's scheduler takes a processor to compute; 1024 is the most (Linux, Documentation/scheduler)."""
    try:
        return int((topology / f"cpu{min(core)}/cpu_capacity").read_text())
    except (OSError, ValueError):
        return 1024


def affordable_threads() -> int:
    """On how many of `computing_cores` this process may compute at a time.

    A quota of one and a half processors pays for one thread: two would both be stopped in the middle of a period, and
    a parallel loop waits for its last thread.
    """
    quota, cores = cpu_quota(), len(computing_cores())
    return cores if quota is None else max(1, min(cores, int(quota)))


def build_cores(asked: int, cores: Sequence[Core] | None = None) -> tuple[Core, ...]:
    """The cores that builds use: the last ones, so that the first are left to predictions.

    Args:
        asked: how many; 0 for half of them, or for all where that would leave builds less than two.
        cores: by default those that this thread may use, the slow ones last.
    """
    if cores is None:
        fast = computing_cores()
        cores = (*fast, *(core for core in usable_cores() if core not in fast))
    count = asked or (len(cores) // 2 if len(cores) >= _ENOUGH else len(cores))
    return tuple(cores[-count:])


def cores_of(cpus: Iterable[int], topology: Path = _CPUS) -> tuple[Core, ...]:
    """`cpus`, those that are threads of one core together; each for itself where the kernel does not say."""
    allowed = frozenset(cpus)
    found: dict[Core, None] = {}
    for cpu in sorted(allowed):
        try:
            siblings = _parse_list((topology / f"cpu{cpu}/topology/thread_siblings_list").read_text())
        except (OSError, ValueError):
            siblings = frozenset()
        found[(siblings & allowed) | {cpu}] = None
    return tuple(found)


def by_cache(cores: Iterable[Core], topology: Path = _CPUS) -> tuple[tuple[Core, ...], ...]:
    """`cores`, those that share a cache of the third level together; all in one where the kernel does not say."""
    found: dict[Core, list[Core]] = {}
    for core in cores:
        try:
            sharing = _parse_list((topology / f"cpu{min(core)}/cache/index3/shared_cpu_list").read_text())
        except (OSError, ValueError):
            sharing = frozenset()
        found.setdefault(sharing, []).append(core)
    return tuple(map(tuple, found.values()))


def cpu_quota(groups: Path = _CONTROL_GROUPS, membership: Path = _MEMBERSHIP) -> float | None:
    """The CPU limit of this process's control groups, in processors; None where there is no limit."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = groups / "cpu" if controllers else groups  # version 1 has a folder per controller
        group = Path(path.lstrip("/"))
        # The groups above limit it too. In a container the path may be the host's, and only its root is to be seen
        # here.
        quotas += [quota for each in (group, *group.parents) if (quota := _quota(root / each)) is not None]
    return min(quotas, default=None)


def _quota(group: Path) -> float | None:
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):  # there is none, or it is `max`
        return None


def _parse_list(text: str) -> Core:
    """`0-3,8` -> 0, 1, 2, 3, 8."""
    ranges = [part.partition("-") for part in text.strip().split(",")]
    return frozenset(cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1))
