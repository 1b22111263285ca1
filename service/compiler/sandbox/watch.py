"""Watches what the kernel's resource limits do not cover: the number of threads, and the total size of all files."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from service.compiler.sandbox.policy import Access, Limits
from service.core.errors import BuildFailed

# Each file counts as at least this many bytes. Otherwise, a million empty files would count as nothing.
_SMALLEST_FILE_BYTES = 4096
# The most levels of directories. No tool of a build creates as many, and all paths stay shorter than the kernel's
# limit.
_DEEPEST = 8

REPORT_IT = "this is a defect of the compiler or a malicious file; please report the model"
BUG = (
    "this is a bug in Octet, not in your file: please report it, with the file that octet compile and octet push write "
    "and the traceback in the build's log"
)


class Watch:
    """Watches one child. The watch must be created before the child starts.

    Only bytes that the child writes are counted, not those that were in its writable directories before.
    """

    def __init__(self, access: Access, limits: Limits) -> None:
        self._writable = access.writable
        self._limits = limits
        self._before_bytes = self._used_bytes()

    def check(self, pid: int) -> None:
        """Checks the limits of the child.

        Raises:
            BuildFailed: the child has too many threads or has written too much.
        """
        threads = self._threads(pid)
        if threads > self._limits.threads:
            raise BuildFailed(
                f"the compiler process started {threads} threads; {self._limits.threads} are allowed", hint=REPORT_IT
            )
        self.check_files(pid)

    def check_files(self, pid: int) -> None:
        """Checks only the sizes of files. This is also possible after the child has ended."""
        written = self._used_bytes() + self._deleted_bytes(pid) - self._before_bytes
        if written > self._limits.file_bytes:
            raise too_much_written(self._limits)

    def _threads(self, pid: int) -> int:
        with contextlib.suppress(OSError):
            found = re.search(r"^Threads:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
            return int(found[1]) if found else 0
        return 0

    def _used_bytes(self) -> int:
        return sum(_cost_bytes(entry) for root in self._writable for entry in _tree(root))

    def _deleted_bytes(self, pid: int) -> int:
        """Returns the size of files that are open but already deleted, which still use disk space."""
        total = 0
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
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
    directories = [(str(root), 0)]
    while directories:
        path, depth = directories.pop()
        if depth > _DEEPEST:
            raise BuildFailed("the compiler process created directories that are nested too deep", hint=REPORT_IT)
        # Files may be created and deleted during the walk.
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        directories.append((entry.path, depth + 1))


def _cost_bytes(status: os.stat_result) -> int:
    return max(status.st_blocks * 512, _SMALLEST_FILE_BYTES)
