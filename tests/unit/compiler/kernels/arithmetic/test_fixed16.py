"""The functions of 16-bit numbers equal those of gemmlowp for all 65536 numbers, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.arithmetic.fixed16 import Words
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.program import Program, load
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics.litert import gemmlowp16
from tests.support.images import RUNNABLE, run

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
EVERY = np.arange(-(1 << 15), 1 << 15, dtype=np.int16)


@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
@pytest.mark.parametrize("function", ["logistic", *(f"tanh {bits}" for bits in range(7))])
def test_every_number(isa: Isa, function: str) -> None:
    name, *bits = function.split()
    program = Program()
    source, target = (program.parameter(end, "int16", EVERY.size) for end in ("source", "target"))
    words = Words(program, isa)
    with program.loop(EVERY.size // words.lanes, "step") as step:
        x = load(source, step * words.lanes, words.lanes)
        value = words.tanh(x, int(bits[0])) if bits else words.logistic(x)
        program.store(target, step * words.lanes, value, words.lanes)
    kernel = Kernel("function", program.function(), (), 2 * EVERY.size)
    expected = gemmlowp16.table(name, int(bits[0]) if bits else 3)
    np.testing.assert_array_equal(run(isa, kernel, EVERY, dtype="int16"), expected)
