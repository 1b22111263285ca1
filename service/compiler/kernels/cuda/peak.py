"""The loop that measures the peak rate of a GPU's instructions (`source/peak.cuh`)."""

from __future__ import annotations

from service.compiler.kernels.cuda.text import kernel_function, translation_unit
from service.compiler.kernels.cuda.tiles import Unit
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.core.artifacts.call_plan import Launch

THREADS = 256  # the threads of a thread block
# The number of thread blocks for each multiprocessor of the most common GPU, and the number of iterations of the loop.
# There are so many blocks that the last wave, which does not use all multiprocessors, takes a small part of the time.
# There are so many iterations that the kernel takes a few milliseconds.
BLOCKS, REPETITIONS = 64, 1 << 10
OPERANDS = 32  # the number of operands, words of four bytes
# The products of one loop iteration of a warp: the number of independent instructions times the products of each.
_TURNS = {Unit.DOT: 8 * 32 * 4, Unit.MATRIX: 8 * 16 * 8 * 32, Unit.GROUP: 2 * 64 * 128 * 32 // 4}


def peak(unit: Unit, blocks: int, repetitions: int) -> Kernel:
    """Returns the kernel. Its parameters are `[OPERANDS] uint32` and `[threads] int32`.

    Its facts contain the number of products.

    Args:
        unit: the type of multiply instruction. The GPU must support it.
        blocks: the number of thread blocks.
        repetitions: the number of iterations of the loop.
    """
    parameters = ["const octet::u32* __restrict__ operands", "octet::i32* __restrict__ totals"]
    body = [f"octet::{unit.name.lower()}_peak<{repetitions}>(operands, totals);"]
    text = translation_unit("peak.cuh", kernel_function(THREADS, parameters, body))
    macs = blocks * THREADS // 32 * repetitions * _TURNS[unit]
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), (64 + 128) * 32 if unit is Unit.GROUP else 0)  # its operands
    facts = {"macs": macs, "instruction": unit.instruction}
    return Kernel("peak", DeviceFunction(text, launch), (), 4 * blocks * THREADS, facts)
