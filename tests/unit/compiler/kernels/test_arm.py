"""The tests of kernels run on emulated ARM CPUs too (`tests.support.arm`): this says that the emulation can fail."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.program import Program, load
from tests.support import arm

pytestmark = pytest.mark.skipif(bool(arm.MISSING), reason=arm.MISSING)

_SIZE = 64


def added(target: str, *, beyond: int = 0) -> Kernel:
    """Adds to each total the dot product of four bytes, from `beyond` on, and the first four."""
    isa, program = ISAS[target], Program()
    source = program.parameter("source", "uint8", _SIZE + beyond)
    destination = program.parameter("destination", "int32", isa.lanes)
    operand = isa.broadcast(program, source, beyond)
    weights = isa.computed_weights(program, load(source, 0, isa.bytes))
    program.store(destination, 0, isa.dot(load(destination, 0, isa.lanes), operand, weights), isa.lanes)
    return Kernel("added", program.function(), (), 4 * isa.lanes)


def arguments(target: str) -> list[arm.Array]:
    return [np.full(_SIZE, 2, np.uint8), np.full(ISAS[target].lanes, 7, np.int32)]


@pytest.mark.parametrize("target", arm.CPUS)
def test_a_kernel_computes_on_an_emulated_cpu(target: str) -> None:
    source, totals = arm.call(target, added(target), arguments(target))
    assert (source == 2).all()
    assert (totals == 7 + 4 * 2 * (2 - ISAS[target].operand_zero_point)).all()


@pytest.mark.parametrize(("target", "without"), [("aarch64+dotprod", "aarch64"), ("aarch64+i8mm", "aarch64+dotprod")])
def test_an_instruction_that_a_cpu_lacks_is_an_illegal_one(target: str, without: str) -> None:
    with pytest.raises(arm.Died, match="Illegal instruction"):
        arm.call(target, added(target), arguments(target), cpu=arm.CPUS[without])


def test_a_kernel_that_reads_beyond_an_operand_dies() -> None:
    with pytest.raises(arm.Died, match="Segmentation fault"):
        arm.call("aarch64", added("aarch64", beyond=_SIZE), arguments("aarch64"))
