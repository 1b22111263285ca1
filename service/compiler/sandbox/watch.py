"""What no resource limit bounds, watched from outside: the number of threads, and all files together."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from service.compiler.sandbox.policy import Access, Limits
from service.core.errors import BuildFailed

# An empty file costs the disk an inode; without this, a million of them would count as nothing.
_SMALLEST_FILE_BYTES = 4096


class Watch:
    """Looks at one child. What it writes counts on top of what its writable directories held before."""

    def __init__(self, pid: int, access: Access, limits: Limits) -> None:
        self._process = Path(f"/proc/{pid}")
        self._writable = access.writable
        self._limits = limits
        self._before_bytes = self._used_bytes()

    def check(self) -> None:
        """Nothing, while the child keeps within its limits.

        Raises:
            BuildFailed: it has too many threads or has written too much.
        """
        threads = self._threads()
        if threads > self._limits.threads:
            raise BuildFailed(f"the compiler process started {threads} threads; {self._limits.threads} are allowed")
        written = self._used_bytes() + self._deleted_bytes() - self._before_bytes
        if written > self._limits.file_bytes:
            raise too_much_written(self._limits)

    def _threads(self) -> int:
        with contextlib.suppress(OSError):
            found = re.search(r"^Threads:\s+(\d+)$", (self._process / "status").read_text(), re.MULTILINE)
            return int(found[1]) if found else 0
        return 0

    def _used_bytes(self) -> int:
        return sum(_cost_bytes(entry) for root in self._writable for entry in _tree(root))

    def _deleted_bytes(self) -> int:
        """Files that are open but have no name any more: they take space all the same."""
        total = 0
        with contextlib.suppress(OSError):
            for link in (self._process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    status = link.stat()
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        total += _cost_bytes(status)
        return total


def too_much_written(limits: Limits) -> BuildFailed:
    return BuildFailed(
        f"the compiler process wrote more than {limits.file_bytes} bytes",
        hint="the model is too large for this server's build limits",
    )


def _tree(root: Path) -> Iterator[os.stat_result]:
    directories = [str(root)]
    while directories:
        # Files come and go while we look.
        with contextlib.suppress(OSError), os.scandir(directories.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)


def _cost_bytes(status: os.stat_result) -> int:
    return max(status.st_blocks * 512, _SMALLEST_FILE_BYTES)
