"""The access rights and resource limits of a child. The parent sets them, and the child enforces them on itself."""

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
_CLOCK_FACTOR = 20  # wall-clock limit / processor time limit; a child that gets a twentieth of a core reaches both
_TEN_YEARS_S = 10 * 365 * 86400.0
_ORDERS_BYTES = 64 << 20  # limit of the file from which a child reads its orders


@dataclass(frozen=True)
class Access:
    """The files that a child may access. A directory includes everything in it.

    Attributes:
        readable: files that the child may read, besides the interpreter, its packages and the system's libraries.
        writable: files that the child may write. The first one is the scratch directory, which is the child's working
            directory, TMPDIR and HOME.
        executable: the programs that the child may exec; only `run_program` needs this.
    """

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    executable: tuple[Path, ...] = ()

    @property
    def scratch(self) -> Path | None:
        return self.writable[0] if self.writable else None

    def rules(self) -> Rules:
        """Returns the Landlock rules for these files, in addition to `system_rules`."""
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
    """The resource limits of a child.

    Attributes:
        wall_s: wall-clock time.
        cpu_s: the limit of the processor time of all threads.
        stall_s: the longest time during which no thread may run or wait for a processor; None for no limit. Unlike
            `wall_s`, this does not depend on the load of the machine.
        memory_bytes: the limit of the address space. The interpreter with the compiler library uses about 0.5 GB of
            address space.
        file_bytes: the limit of the size of each file that the child writes, and of all these files together.
        open_files: the limit of the number of file descriptors.
        threads: the limit of the number of threads, including the first. If 1, the child cannot start threads.
        nice: the niceness, as in `core.system.scheduling.lower_priority`.
        processors: the numbers of the processors on which the child may run. If empty, the child may run on the
            processors of its parent.
        places_threads: true if the child may set the processors of its threads, so that its timings are the same as
            outside the sandbox. The child can then also set the processors of other processes of its user.
        cards: true if the child may use NVIDIA GPUs; see `sandbox.gpus`.
        connected: true if the child may send and receive over sockets that are already connected.
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
    connected: bool = False
    stall_s: float | None = None


def working(cpu_s: float, stall_s: float, memory_bytes: int) -> Limits:
    """Returns limits for a child that computes: mainly for its processor time, and for how long it may do nothing.

    The wall-clock limit is so high that it ends only a child that makes almost no progress.

    Args:
        memory_bytes: the limit of the address space, and of the files that the child may write.
    """
    return Limits(
        wall_s=_CLOCK_FACTOR * cpu_s,
        cpu_s=cpu_s,
        memory_bytes=memory_bytes,
        file_bytes=memory_bytes,
        stall_s=stall_s,
    )


def unlimited(file_bytes: int) -> Limits:
    """Returns very high limits, for a child of a command whose user waits and can interrupt the command.

    Args:
        file_bytes: the size of the memory that the child shares with its parent. The kernel counts this memory as a
            file, so the limit of file sizes must be above it.
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
    """Returns the read access that every child has: installed code, and the files that the C library and CPU detection
    need.
    """
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    libraries = {Path(prefix, name) for prefix in prefixes for name in ("lib", "lib64")}
    libraries |= {Path(path) for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))}
    # Not the folders of source trees, which may contain private files.
    libraries |= {Path(path) for path in sys.path if path.endswith("-packages")}
    libraries |= {Path(path) for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")}
    libraries |= {Path(path) for path in service.__path__}  # an editable install is outside of the prefixes
    facts = (
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/usr/share/zoneinfo",
        # only /proc/self, so that a child cannot read the command lines of other processes
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/sys/vm/overcommit_memory",
        "/sys/devices/system/cpu",
        "/sys/fs/cgroup",  # the processor quota of the container
        "/dev/urandom",
        "/dev/zero",
    )
    program = Path(sys.executable).resolve()  # LLVM searches for its own resources in the same folder
    rules = [(path, READ) for path in (*sorted(libraries), *map(Path, facts), program) if path.exists()]
    return [*rules, (Path("/dev/null"), USE_DEVICE)]
