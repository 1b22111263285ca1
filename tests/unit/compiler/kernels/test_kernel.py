"""Equal programs have one symbol, however their variables are named."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.moves import Memory, Move
from service.compiler.kernels.program import Program, load


def _copy(name: str, count: int = 16) -> Kernel:
    program = Program()
    source, target = program.parameter(name, "float32", count), program.parameter("target", "float32", count)
    with program.loop(count, f"{name}_index") as index:
        program.store(target, index, load(source, index, 1), 1)
    return Kernel("move", program.function(), (), count)


def test_programs_that_differ_in_names_alone_share_a_symbol() -> None:
    assert _copy("x").symbol == _copy("y").symbol != _copy("x", 32).symbol


def test_moves_are_told_apart_by_everything_that_their_kernel_depends_on() -> None:
    memory, elements = Memory.contiguous((2, 8), "float32"), np.arange(16)
    move = Move((memory,), (None,), memory, elements)
    assert move.content == Move((Memory.contiguous((2, 8), "float32"),), (None,), memory, elements.copy()).content
    others = [
        Move((Memory.contiguous((2, 8), "int32"),), (None,), memory, elements),
        Move((memory,), (None,), memory, elements[::-1].copy()),
        Move((memory,), (np.zeros(256, np.uint8),), memory, elements),
        Move((memory,), (None,), Memory.contiguous((4, 4), "float32"), elements),
        Move((memory,), (None,), memory, elements, fill=1),
    ]
    assert len({each.content for each in (move, *others)}) == 6
