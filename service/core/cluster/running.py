"""A record of the calls that are running, in shared memory that survives a crash of the process that runs them.

The memory is a `memfd` with a fixed number of slots, one for each instance of a model in the data plane. Before the
data plane enters an instance's native code, it counts the call and sets the slot's mark; afterwards it clears the mark.
This takes a few writes to memory (`native/plane/control/loading.h`). The supervising process maps the same memory.
After a crash it reads which marks are still set; while the data plane runs, it looks for calls that have taken too
long.
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
_RECORD = struct.Struct("<Qdi236s")  # the struct CallRecord of native/plane/queue/runner.h
_DIGESTS_AT = _SLOTS
_RECORDS_AT = _DIGESTS_AT + _SLOTS * _DIGEST_BYTES
_NO_MARKS = bytes(_SLOTS)
_BYTES = _RECORDS_AT + _SLOTS * _RECORD.size


@dataclass(frozen=True)
class Call:
    """A call of a model that is running.

    Attributes:
        slot: the index of the instance's slot.
        number: the number of the call among those of its slot.
        thread: the kernel's id of the thread that runs the call.
        limit_s: the time after which the call counts as hung.
        model: the model's name and version, for messages; empty if the table does not contain them.
        artifact: the artifact that runs; None if the table does not contain it.
    """

    slot: int
    number: int
    thread: int
    limit_s: float
    model: str
    artifact: Digest | None


class RunningCalls:
    """The table of running calls.

    The process that runs artifacts may write anything to the table, so every value is checked when it is read.

    Attributes:
        descriptor: the file descriptor of the memory, for the data plane to inherit.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("octet-running")
        os.ftruncate(self.descriptor, _BYTES)  # untouched pages take no memory
        self._memory = mmap.mmap(self.descriptor, _BYTES)  # a byte for each mark, then the digests, then the records

    def marked_artifacts(self) -> list[Digest]:
        """Returns the artifacts whose marks are set, each once."""
        found = dict.fromkeys(self._artifact(slot) for slot in self._marked_slots())
        return [artifact for artifact in found if artifact is not None]

    def calls(self) -> list[Call]:
        """Returns the calls that are running."""
        return [self._call(slot) for slot in self._marked_slots()]

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)

    def clear(self) -> None:
        """Clears the marks that a dead process left."""
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
