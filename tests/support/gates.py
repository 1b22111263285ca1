"""Where models stand still until a test lets them go on, and note what they were given: C code in another process.

Their process may open no file that is written to; the memory of all gates is a `memfd` that it inherits.
"""

from __future__ import annotations

import itertools
import mmap
import os
import time
from functools import cache

from tests.support.waiting import GIVE_UP_S, eventually_async

_SIZE_BYTES = 4096  # of a gate: a page
_COUNT = 16  # that a test may use at a time, several times over
_OPENED, _ENTERED, _SEEN_COUNT, _SEEN = range(4)
_numbers = itertools.count()

SOURCE = """
#include <stdint.h>
void* mmap(void*, unsigned long, int, int, int, long);
int usleep(unsigned);

/* Notes that a call has begun, waits until the gate is open, and notes `value`. */
static int32_t gate(int32_t value) {
  volatile int32_t* memory = mmap(0, %(bytes)d, 3, 1, %(descriptor)d, %(offset)d);
  if (memory == (void*)-1) return 1;
  __atomic_fetch_add(&memory[1], 1, __ATOMIC_SEQ_CST);
  for (int waited_ms = 0; !memory[0]; ++waited_ms) {
    if (waited_ms == %(give_up_ms)d) return 2;
    usleep(1000);
  }
  memory[3 + __atomic_fetch_add(&memory[2], 1, __ATOMIC_SEQ_CST)] = value;
  return 0;
}
"""


@cache
def descriptor() -> int:
    """Of the memory of all gates, under this number in every data plane of this process."""
    found = os.memfd_create("gates")
    os.ftruncate(found, _COUNT * _SIZE_BYTES)
    return found


class Gate:
    """One that is closed until `open`.

    Attributes:
        source: C, with which a model calls `gate(value)`.
    """

    def __init__(self) -> None:
        offset = next(_numbers) % _COUNT * _SIZE_BYTES
        self._memory = mmap.mmap(descriptor(), _SIZE_BYTES, offset=offset)
        self._memory[:] = bytes(_SIZE_BYTES)
        self._words = memoryview(self._memory).cast("i")
        self.source = SOURCE % {
            "bytes": _SIZE_BYTES,
            "descriptor": descriptor(),
            "offset": offset,
            "give_up_ms": GIVE_UP_S * 1000,
        }

    def open(self) -> None:
        self._words[_OPENED] = 1

    def close(self) -> None:
        self._words[_OPENED] = 0

    @property
    def entered(self) -> int:
        """How many calls have begun."""
        return self._words[_ENTERED]

    @property
    def seen(self) -> list[int]:
        """What calls that went through were given, in their order."""
        return list(self._words[_SEEN : _SEEN + self._words[_SEEN_COUNT]])

    async def running(self, count: int = 1) -> None:
        """Waits until so many calls have begun."""
        await eventually_async(lambda: self.entered >= count)

    def wait_running(self, count: int = 1) -> None:
        """As `running`, for a thread."""
        deadline_s = time.monotonic() + GIVE_UP_S
        while self.entered < count:
            assert time.monotonic() < deadline_s, "no call began"
            time.sleep(0.002)
