"""A loop of one instruction in place of a model, which measures how many of them the cores can currently execute. The
job's `path` is the name of the instruction."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.frameworks import Job, Loaded
from benchmarks.harness.turns import time_calls
from benchmarks.peak.instructions import named
from benchmarks.peak.loops import Clock, Loop, prepare_threads
from benchmarks.peak.theory import is_possible, starts_per_cycle
from benchmarks.peak.tiles import TileLoop

_CALLS = 10


def load(job: Job) -> Loaded:
    """Loads the loop. Raises RuntimeError if it is faster than the core can be."""
    prepare_threads(job.threads)
    instruction = named(job.path)
    made = TileLoop if instruction.register == "tmm" else Loop
    loop, clock_ghz = made(instruction, job.threads), Clock().ghz()
    limit = starts_per_cycle(Path("/proc/cpuinfo").read_text(), instruction.register)
    reached = loop.macs / instruction.macs / job.threads / min(time_calls(loop.call, 0, _CALLS)) / clock_ghz / 1e9
    if not is_possible(reached, limit):
        raise RuntimeError(f"{instruction.name}: {reached:.2f} per cycle, but the core can start at most {limit}")
    about = {"macs": loop.macs, "macs_each": instruction.macs, "clock_ghz": clock_ghz, "starts_per_cycle": limit}
    return Loaded(loop.call, list, about)
