"""The loop that measures what a card's instructions can do at most (`source/peak.cuh`)."""

from __future__ import annotations

from service.compiler.kernels.cuda.cards import Card
from service.compiler.kernels.cuda.text import kernel_function, translation_unit
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.core.call_plan import Launch

THREADS = 256  # of a block
# So many for each multiprocessor of the commonest card that the last ones, which leave some of a smaller card idle, are
# few; and so much for each that a kernel takes a few milliseconds.
BLOCKS, REPETITIONS = 64, 1 << 10
OPERANDS = 32  # words of four bytes
_INDEPENDENT = 8
_MACS_OF_WARP = {"matrix": 16 * 8 * 32, "dot": 32 * 4}  # of one instruction


def peak(card: Card, blocks: int, repetitions: int, *, matrix: bool) -> Kernel:
    """A function of `[OPERANDS] uint32` and `[threads] int32`; its facts say how many products a call makes.

    Args:
        blocks: of threads.
        repetitions: of the loop, in which each thread has `_INDEPENDENT` products under way.
        matrix: whether tensor cores multiply, which `card` has to have.
    """
    name = "matrix" if matrix else "dot"
    parameters = ["const octet::u32* __restrict__ operands", "octet::i32* __restrict__ totals"]
    body = [f"octet::{name}_peak<{repetitions}>(operands, totals);"]
    text = translation_unit("peak.cuh", kernel_function(THREADS, parameters, body))
    macs = blocks * THREADS // 32 * repetitions * _INDEPENDENT * _MACS_OF_WARP[name]
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1))
    facts = {"macs": macs, "card": card.capability, "instruction": "mma" if matrix else "dp4a"}
    return Kernel("peak", DeviceFunction(text, launch), (), 4 * blocks * THREADS, facts)
