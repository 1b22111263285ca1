"""The processor cores that this process may use, according to its affinity mask and its control group's CPU quota."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

Core = frozenset[int]  # the numbers of the logical processors that share one physical core

_CPUS = Path("/sys/devices/system/cpu")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_ENOUGH = 4  # if there are at least this many cores, builds leave half of them to predictions


def usable_cores() -> tuple[Core, ...]:
    """Returns the cores that this thread may use."""
    return cores_of(os.sched_getaffinity(0))


def computing_cores() -> tuple[Core, ...]:
    """Returns the cores that predictions compute on: the fast ones of `usable_cores`."""
    return fast_cores(usable_cores())


def fast_cores(cores: Sequence[Core], topology: Path = _CPUS) -> tuple[Core, ...]:
    """Returns the n fastest of `cores`, for the n with which a model runs fastest.

    A layer waits for its last thread, so n cores compute as much as n times the slowest of them: four cores of capacity
    1024 and four of 446 count as 8 x 446, less than the first four alone. If two values of n are equally fast, the
    larger one is taken. If the kernel does not report how fast the cores are, all of them are returned.
    """
    capacity = {core: _capacity(core, topology) for core in cores}
    fastest = sorted(capacity.values(), reverse=True)
    count = max(range(1, len(fastest) + 1), key=lambda n: (n * fastest[n - 1], n))
    return tuple(core for core in cores if capacity[core] >= fastest[count - 1])


def _capacity(core: Core, topology: Path) -> int:
    """Returns the relative speed of a core, as Linux reports it (Documentation/scheduler/sched-capacity.rst).

    The fastest core of a machine has 1024. If the kernel does not report speeds, every core has 1024.
    """
    try:
        return int((topology / f"cpu{min(core)}/cpu_capacity").read_text())
    except (OSError, ValueError):
        return 1024


def affordable_threads() -> int:
    """Returns the number of `computing_cores` that this process may use at the same time.

    A quota is rounded down: with a quota of 1.5 processors, two threads would both be stopped in the middle of each
    period, and a parallel loop waits for its last thread.
    """
    quota, cores = cpu_quota(), len(computing_cores())
    return cores if quota is None else max(1, min(cores, int(quota)))


def build_cores(requested: int, cores: Sequence[Core] | None = None) -> tuple[Core, ...]:
    """Returns the cores that builds use: the last cores, so that the first cores are left to predictions.

    Args:
        requested: the number of cores; 0 for half of them, or for all if builds would get less than two.
        cores: the cores to choose from; by default those that this thread may use, the slow ones last.
    """
    if cores is None:
        fast = computing_cores()
        cores = (*fast, *(core for core in usable_cores() if core not in fast))
    count = requested or (len(cores) // 2 if len(cores) >= _ENOUGH else len(cores))
    return tuple(cores[-count:])


def cores_of(cpus: Iterable[int], topology: Path = _CPUS) -> tuple[Core, ...]:
    """Groups the logical processors `cpus` by core. If the kernel does not report the groups, each is its own core."""
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
    """Groups `cores` by the level-3 cache that they share. If the kernel does not report it, they form one group."""
    found: dict[Core, list[Core]] = {}
    for core in cores:
        try:
            sharing = _parse_list((topology / f"cpu{min(core)}/cache/index3/shared_cpu_list").read_text())
        except (OSError, ValueError):
            sharing = frozenset()
        found.setdefault(sharing, []).append(core)
    return tuple(map(tuple, found.values()))


def cpu_quota(groups: Path = _CONTROL_GROUPS, membership: Path = _MEMBERSHIP) -> float | None:
    """Returns the CPU limit of this process's control groups, in processors; None if it is unlimited."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = groups / "cpu" if controllers else groups  # cgroups version 1 has a folder per controller
        group = Path(path.lstrip("/"))
        # Parent groups limit the process too. In a container, `path` may be a path of the host, of which only the root
        # is visible.
        quotas += [quota for each in (group, *group.parents) if (quota := _quota(root / each)) is not None]
    return min(quotas, default=None)


def _quota(group: Path) -> float | None:
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):  # no limit: the file does not exist, or contains `max`
        return None


def _parse_list(text: str) -> Core:
    """Parses a list of processors: `0-3,8` -> 0, 1, 2, 3, 8."""
    ranges = [part.partition("-") for part in text.strip().split(",")]
    return frozenset(cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1))
