"""Simulates loops with llvm-mca, LLVM's model of a core's pipelines, with all data in the first-level cache."""

from __future__ import annotations

import math
import re
import subprocess
from functools import cache

from benchmarks.arm.assembly import Loop

MCA = "llvm-mca-19"
_PASSES = 60
_INDEPENDENT = 12  # number of accumulators, so that no product waits for another
_CYCLES = re.compile(r"^Total Cycles:\s+(\d+)$", re.MULTILINE)
_OPERANDS = {"dot": ".16b", "mla": ".16b", "lal": ".4h", "lal2": ".8h", "lsl": ".4h", "lsl2": ".8h"}


@cache
def product_cycles(core: str, name: str) -> float:
    """Returns the cycles per product instruction for many independent ones: the rate at which the core can start
    them."""
    ending = _OPERANDS[re.sub(r"^(us|su|[su])m?", "", name)]
    last = "v15.4b[0]" if name == "sudot" else f"v29{ending}"  # sudot exists only by element
    lines = [f"{name} v{index}.4s, v28{ending}, {last}" for index in range(_INDEPENDENT)]
    return _cycles(core, "\n".join(lines) + "\n") / _INDEPENDENT


def bound(core: str, loop: Loop) -> float:
    """Returns the cycles in which the core could start the loop's product instructions if it did nothing else."""
    return sum(count * product_cycles(core, name) for name, count in loop.products.items())


@cache
def cycles(core: str, loop: Loop) -> float:
    """Returns the cycles of one iteration; infinity if the core lacks an instruction, or LLVM's model does not cover
    one.
    """
    return _cycles(core, loop.text())


def _cycles(core: str, text: str) -> float:
    command = [MCA, "-mtriple=aarch64", f"-mcpu={core}", f"-iterations={_PASSES}", "-mattr=+dotprod,+i8mm,+fullfp16"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    found = _CYCLES.search(done.stdout)
    if done.returncode or found is None:
        return math.inf
    return int(found[1]) / _PASSES
