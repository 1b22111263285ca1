"""A record of the artifacts that run at this moment, in memory that outlives the process whose native code may crash.

A table of fixed slots in a `memfd`. The data plane has a slot for each instance of a model, sets its mark before the
instance's native code is entered and clears it afterwards: two stores of a byte (`native/plane/control/loading.h`).
The process that watches over it maps the same memory, and reads after a crash whose marks are still set.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput

_SLOTS = 16_384
_DIGEST_BYTES = len("sha256:") + 64
_BYTES = _SLOTS * (1 + _DIGEST_BYTES)


class Running:
    """The table.

    Attributes:
        descriptor: of the memory, for the data plane to inherit.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("octet-running")
        os.ftruncate(self.descriptor, _BYTES)  # untouched pages take no memory
        self._memory = mmap.mmap(self.descriptor, _BYTES)  # a byte for each mark, then the digests

    def marked(self) -> list[Digest]:
        """The artifacts whose marks are set, each once."""
        found: dict[Digest, None] = {}
        for number, mark in enumerate(self._memory[:_SLOTS]):
            if mark:
                start = _SLOTS + number * _DIGEST_BYTES
                with suppress(InvalidInput, UnicodeDecodeError):  # a process that crashed may have written anywhere
                    found[parse_digest(self._memory[start : start + _DIGEST_BYTES].decode())] = None
        return list(found)

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)

    def clear(self) -> None:
        """Forgets the marks that a process left; to be called when it is dead."""
        self._memory[:_SLOTS] = bytes(_SLOTS)
