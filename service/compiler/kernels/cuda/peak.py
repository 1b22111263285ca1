"""The loop that measures the peak rate of a GPU's instructions (`source/peak.cuh`)."""

from __future__ import annotations

from service.compiler.kernels.cuda.text import kernel_function, translation_unit
from service.compiler.kernels.cuda.tiles import Unit
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.core.call_plan import Launch

THREADS = 256  # of a block
# There are so many blocks for each multiprocessor of the most common GPU that the last wave, which does not use all of
# them, is a small part; and so many repetitions that a kernel takes a few milliseconds.
BLOCKS, REPETITIONS = 64, 1 << 10
OPERANDS = 32  # words of four bytes
# For one iteration of the loop: the number of independent instructions, and the products of one instruction of a warp.
_TURNS = {Unit.DOT: 8 * 32 * 4, Unit.MATRIX: 8 * 16 * 8 * 32, Unit.GROUP: 2 * 64 * 128 * 32 // 4}


def peak(unit: Unit, blocks: int, repetitions: int) -> Kernel:
    """Returns a function of `[OPERANDS] uint32` and `[threads] int32`. Its facts contain the number of products.

    Args:
        unit: the unit that multiplies, which the GPU must have.
        blocks: the number of blocks of threads.
        repetitions: the number of iterations of the loop.
    """
    parameters = ["const octet::u32* __restrict__ operands", "octet::i32* __restrict__ totals"]
    body = [f"octet::{unit.name.lower()}_peak<{repetitions}>(operands, totals);"]
    text = translation_unit("peak.cuh", kernel_function(THREADS, parameters, body))
    macs = blocks * THREADS // 32 * repetitions * _TURNS[unit]
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), (64 + 128) * 32 if unit is Unit.GROUP else 0)  # its operands
    facts = {"macs": macs, "instruction": unit.instruction}
    return Kernel("peak", DeviceFunction(text, launch), (), 4 * blocks * THREADS, facts)
