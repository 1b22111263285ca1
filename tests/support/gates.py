"""Gates. A model's C code in another process stops at a gate until the test opens it, and records its input there.

That process may not open files for writing, so the memory of all gates is a `memfd` that it inherits.
"""

from __future__ import annotations

import itertools
import mmap
import os
import time
from functools import cache

from tests.support.waiting import GIVE_UP_S, eventually_async

_SIZE_BYTES = 4096  # Size of a gate: a page.
_COUNT = 16  # Number of gates, which is several times as many as a test uses.
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
    """Returns the file descriptor of the memory of all gates. It has the same number in every data plane that this
    process starts.
    """
    found = os.memfd_create("gates")
    os.ftruncate(found, _COUNT * _SIZE_BYTES)
    return found


class Gate:
    """A gate that is closed until `open` is called.

    Attributes:
        source: C code that defines the function `gate(value)` for a model.
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
        """The number of calls that have begun."""
        return self._words[_ENTERED]

    @property
    def seen(self) -> list[int]:
        """The values of the calls that passed the gate, in order."""
        return list(self._words[_SEEN : _SEEN + self._words[_SEEN_COUNT]])

    async def running(self, count: int = 1) -> None:
        """Waits until `count` calls have begun."""
        await eventually_async(lambda: self.entered >= count)

    def wait_running(self, count: int = 1) -> None:
        """Waits like `running`, but blocks the thread."""
        deadline_s = time.monotonic() + GIVE_UP_S
        while self.entered < count:
            assert time.monotonic() < deadline_s, "no call began"
            time.sleep(0.002)
