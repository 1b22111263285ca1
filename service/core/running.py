"""A record of the artifacts that run at this moment, in memory that outlives the process whose native code may crash.

A table of fixed slots in a `memfd`. The process that runs models has a slot for each instance, sets its mark before the
instance's native code is entered and clears it afterwards: two stores of a byte. The process that watches over it maps
the same memory, and reads after a crash whose marks are still set.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from contextlib import suppress
from types import TracebackType

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput, NotReady

_SLOTS = 16_384
_DIGEST_BYTES = len("sha256:") + 64
_BYTES = _SLOTS * (1 + _DIGEST_BYTES)


class Place:
    """The slot of one instance; freed when nothing refers to it.

    Attributes:
        mark: `mark[0]` is 1 while the instance's native code runs, and else 0, as in a `with` block of this slot.
    """

    def __init__(self, running: Running, number: int, artifact: Digest) -> None:
        self._running, self._number, self._artifact = running, number, artifact
        self.mark: memoryview = running.mark(number)

    def another(self) -> Place:
        """For another instance of the same artifact."""
        return self._running.place(self._artifact)

    def __enter__(self) -> None:
        self.mark[0] = 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mark[0] = 0

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was never made
            self._running.free(self._number)


class Running:
    """The table. Shared with the processes that are forked after it was made; one of them takes slots."""

    def __init__(self) -> None:
        descriptor = os.memfd_create("octet-running")
        try:
            os.ftruncate(descriptor, _BYTES)  # untouched pages take no memory
            self._memory = mmap.mmap(descriptor, _BYTES)  # a byte for each mark, then the digests
        finally:
            os.close(descriptor)
        self._lock = threading.Lock()
        self._used = 0  # slots that were ever taken; those of them that were given back are in `_free`
        self._free: deque[int] = deque()  # whose methods are atomic: a slot may be freed in the middle of anything

    def place(self, artifact: Digest) -> Place:
        """A place for an instance of `artifact`. Raises `NotReady` if all are taken."""
        with self._lock:
            try:
                number = self._free.popleft()
            except IndexError:
                if self._used == _SLOTS:
                    raise NotReady(f"{_SLOTS} instances are loaded, and there is no room for another") from None
                number, self._used = self._used, self._used + 1
            start = _SLOTS + number * _DIGEST_BYTES
            self._memory[start : start + _DIGEST_BYTES] = artifact.encode()
        return Place(self, number, artifact)

    def mark(self, number: int) -> memoryview:
        """The mark of a slot, `[1]` uint8."""
        return memoryview(self._memory)[number : number + 1]

    def free(self, number: int) -> None:
        self._free.append(number)

    def marked(self) -> list[Digest]:
        """The artifacts whose marks are set, each once."""
        found: dict[Digest, None] = {}
        for number, mark in enumerate(self._memory[:_SLOTS]):
            if mark:
                start = _SLOTS + number * _DIGEST_BYTES
                with suppress(InvalidInput, UnicodeDecodeError):  # a process that crashed may have written anywhere
                    found[parse_digest(self._memory[start : start + _DIGEST_BYTES].decode())] = None
        return list(found)

    def clear(self) -> None:
        """Forgets the marks that a process left; to be called when it is dead."""
        self._memory[:_SLOTS] = bytes(_SLOTS)
