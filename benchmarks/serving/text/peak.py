"""The int8 multiply-accumulates that a core could compute, as the limit of a server that has only this core."""

from __future__ import annotations

from benchmarks.harness.turns import time_calls
from benchmarks.peak.instructions import available
from benchmarks.peak.loops import Loop, prepare_threads
from benchmarks.peak.tiles import TileLoop
from service.core.target import detect_host

_CALLS = 20
# The linear layers of MiniLM-L6, which compute in int8: four of 384 x 384 and two of 384 x 1536 in each of six blocks.
MACS_OF_TOKEN = 6 * (4 * 384 * 384 + 2 * 384 * 1536)


def measure_peak() -> float:
    """Returns the multiply-accumulates per second of this process's first core, to which it pins the process."""
    prepare_threads(1)
    instruction = next(each for each in available(detect_host().features) if each.stored == "int8")
    loop = (TileLoop if instruction.register == "tmm" else Loop)(instruction, 1)
    return loop.macs / min(time_calls(loop.call, 0, _CALLS))
