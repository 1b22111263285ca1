"""The loop that measures what a card's instructions can do at most (`source/peak.cuh`)."""

from __future__ import annotations

from service.compiler.kernels.cuda.text import kernel_function, translation_unit
from service.compiler.kernels.cuda.tiles import Unit
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.core.call_plan import Launch

THREADS = 256  # of a block
# So many for each multiprocessor of the commonest card that the last ones, which leave some of a smaller card idle, are
# few; and so much for each that a kernel takes a few milliseconds.
BLOCKS, REPETITIONS = 64, 1 << 10
OPERANDS = 32  # words of four bytes
# Of a turn of the loop: instructions that do not wait for each other, and the products of one for each warp.
_TURNS = {Unit.DOT: 8 * 32 * 4, Unit.MATRIX: 8 * 16 * 8 * 32, Unit.GROUP: 2 * 64 * 128 * 32 // 4}


def peak(unit: Unit, blocks: int, repetitions: int) -> Kernel:
    """A function of `[OPERANDS] uint32` and `[threads] int32`; its facts say how many products a call makes.

    Args:
        unit: that multiplies, which the card has to have.
        blocks: of threads.
        repetitions: of the loop.
    """
    parameters = ["const octet::u32* __restrict__ operands", "octet::i32* __restrict__ totals"]
    body = [f"octet::{unit.name.lower()}_peak<{repetitions}>(operands, totals);"]
    text = translation_unit("peak.cuh", kernel_function(THREADS, parameters, body))
    macs = blocks * THREADS // 32 * repetitions * _TURNS[unit]
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), (64 + 128) * 32 if unit is Unit.GROUP else 0)  # its operands
    facts = {"macs": macs, "instruction": unit.instruction}
    return Kernel("peak", DeviceFunction(text, launch), (), 4 * blocks * THREADS, facts)
