"""A child's access rights and resource limits, as the parent decides them and the child enforces them on itself."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import service
from service.compiler.sandbox.landlock import EXECUTE, READ, USE_DEVICE, WRITE, Right

Rules = list[tuple[Path, Right]]

UNLIMITED_BYTES = 1 << 62
_CLOCK_FACTOR = 20  # a build that gets a twentieth of a core is slow, and not hung
_TEN_YEARS_S = 10 * 365 * 86400.0
_ORDERS_BYTES = 64 << 20  # what a child is told lies in a file until it has read it


@dataclass(frozen=True)
class Access:
    """The files of one task. A directory stands for everything beneath it; what is not named does not exist.

    Attributes:
        readable: besides the interpreter, its packages and the system's libraries.
        writable: the first one is the scratch directory: working directory, TMPDIR and HOME of the child.
        executable: the programs that an `execute` child may become; needed by `run_program` only.
    """

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    executable: tuple[Path, ...] = ()

    @property
    def scratch(self) -> Path | None:
        return self.writable[0] if self.writable else None

    def rules(self) -> Rules:
        """Landlock rules for the task, on top of `system_rules`."""
        return [
            *((path, READ) for path in self.readable),
            *((path, WRITE) for path in self.writable),
            *((path, EXECUTE) for path in self.executable),
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            name: [str(path.absolute()) for path in paths]
            for name, paths in (
                ("readable", self.readable),
                ("writable", self.writable),
                ("executable", self.executable),
            )
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Access:
        return cls(**{name: tuple(map(Path, paths)) for name, paths in members.items()})


@dataclass(frozen=True)
class Limits:
    """Resource limits of a child.

    Attributes:
        wall_s: time on the clock.
        cpu_s: processor time, over all threads.
        stall_s: for how long none of its threads may run or wait for a processor; None: for ever. Unlike the clock,
            this does not depend on what else the machine does.
        memory_bytes: address space. The interpreter with the compiler library loaded takes about 0.5 GB of it.
        file_bytes: the largest file it may write, and the most that it may write altogether.
        open_files: file descriptors.
        threads: threads, the first included; with 1 it cannot start any.
        nice: as in `core.scheduling.step_back`.
        processors: where it may run, by number; none: where its parent may.
        places_threads: whether it may say where each of its threads runs, for the sake of timings that are to be had
            outside, too. It may then say so of any process of its user; nothing else bounds that.
        cards: whether it may use NVIDIA's; see `sandbox.cards`.
    """

    wall_s: float
    cpu_s: float
    memory_bytes: int
    file_bytes: int
    open_files: int = 256
    threads: int = 64
    nice: int = 0
    processors: tuple[int, ...] = ()
    places_threads: bool = False
    cards: bool = False
    stall_s: float | None = None


def working(cpu_s: float, stall_s: float, memory_bytes: int) -> Limits:
    """Limits of a child that computes: by its processor time, and by its stalls. The clock ends only one that all but
    stands still.

    Args:
        memory_bytes: also of the files that it may write.
    """
    return Limits(
        wall_s=_CLOCK_FACTOR * cpu_s,
        cpu_s=cpu_s,
        memory_bytes=memory_bytes,
        file_bytes=memory_bytes,
        stall_s=stall_s,
    )


def unlimited(file_bytes: int) -> Limits:
    """Limits of a child that somebody waits for, and may end: nothing but the machine's own.

    Args:
        file_bytes: of the memory that it shares with its parent, which counts as a file.
    """
    return Limits(
        wall_s=_TEN_YEARS_S,
        cpu_s=_TEN_YEARS_S,
        memory_bytes=UNLIMITED_BYTES,
        file_bytes=file_bytes + _ORDERS_BYTES,
        threads=64 + 2 * (os.cpu_count() or 1),
        places_threads=True,
    )


def system_rules() -> Rules:
    """Read access that every child has: installed code, and the files that the C library and CPU detection read."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    libraries = {Path(prefix, name) for prefix in prefixes for name in ("lib", "lib64")}
    libraries |= {Path(path) for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))}
    libraries |= {Path(path) for path in sys.path if path.endswith("-packages")}  # but no source trees
    libraries |= {Path(path) for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")}
    libraries |= {Path(path) for path in service.__path__}  # an editable install lies outside the prefixes
    facts = (
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/usr/share/zoneinfo",
        # /proc/self only: command lines of other processes are none of a child's business
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/sys/vm/overcommit_memory",
        "/sys/devices/system/cpu",
        "/sys/fs/cgroup",  # how much of the processors is paid for
        "/dev/urandom",
        "/dev/zero",
    )
    program = Path(sys.executable).resolve()  # LLVM looks for its own resources beside it
    rules = [(path, READ) for path in (*sorted(libraries), *map(Path, facts), program) if path.exists()]
    return [*rules, (Path("/dev/null"), USE_DEVICE)]
