"""A record of the calls that run at this moment, in memory that outlives the process whose native code may crash.

A table of fixed slots in a `memfd`. The data plane has a slot for each instance of a model. It counts the call, sets
the slot's mark before the instance's native code is entered and clears it afterwards: a few stores
(`native/plane/control/loading.h`). The process that watches over it maps the same memory: after a crash it reads whose
marks are still set, and meanwhile which call has run for too long.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from contextlib import suppress
from dataclasses import dataclass

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput

_SLOTS = 16_384
_DIGEST_BYTES = len("sha256:") + 64
_RECORD = struct.Struct("<Qdi236s")  # CallRecord of native/plane/queue/runner.h
_DIGESTS_AT = _SLOTS
_RECORDS_AT = _DIGESTS_AT + _SLOTS * _DIGEST_BYTES
_NO_MARKS = bytes(_SLOTS)
_BYTES = _RECORDS_AT + _SLOTS * _RECORD.size


@dataclass(frozen=True)
class Call:
    """A call of a model that runs.

    Attributes:
        slot: of the instance.
        number: of the call, among those of the slot.
        thread: the kernel's number of the thread that runs it.
        limit_s: a call that takes longer counts as hung.
        model: name and version, for messages; empty where the table does not have them.
        artifact: None where the table does not have it.
    """

    slot: int
    number: int
    thread: int
    limit_s: float
    model: str
    artifact: Digest | None


class Running:
    """The table.

    Whoever runs the artifacts may write anything to it, so that all that is read is checked.

    Attributes:
        descriptor: of the memory, for the data plane to inherit.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("octet-running")
        os.ftruncate(self.descriptor, _BYTES)  # untouched pages take no memory
        self._memory = mmap.mmap(self.descriptor, _BYTES)  # a byte for each mark, then the digests, then the records

    def marked(self) -> list[Digest]:
        """The artifacts whose marks are set, each once."""
        found = dict.fromkeys(self._artifact(slot) for slot in self._marked_slots())
        return [artifact for artifact in found if artifact is not None]

    def calls(self) -> list[Call]:
        """The calls that run at this moment."""
        return [self._call(slot) for slot in self._marked_slots()]

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)

    def clear(self) -> None:
        """Forgets the marks that a process left; to be called when it is dead."""
        self._memory[:_SLOTS] = _NO_MARKS

    def _marked_slots(self) -> list[int]:
        marks = self._memory[:_SLOTS]
        if marks == _NO_MARKS:
            return []
        return [slot for slot, mark in enumerate(marks) if mark]

    def _artifact(self, slot: int) -> Digest | None:
        start = _DIGESTS_AT + slot * _DIGEST_BYTES
        with suppress(InvalidInput, UnicodeDecodeError):  # a process that crashed may have written anywhere
            return parse_digest(self._memory[start : start + _DIGEST_BYTES].decode())
        return None

    def _call(self, slot: int) -> Call:
        number, limit_s, thread, text = _RECORD.unpack_from(self._memory, _RECORDS_AT + slot * _RECORD.size)
        model = text.partition(b"\0")[0].decode(errors="replace")
        printable = "".join(letter if letter.isprintable() else "?" for letter in model)
        return Call(slot, number, thread, math.inf if math.isnan(limit_s) else limit_s, printable, self._artifact(slot))
