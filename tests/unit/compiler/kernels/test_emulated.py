"""The emulated CPUs on which kernels are also tested (`tests.support.emulated`) detect defects of a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.arithmetic.epilogue import Bounds, Epilogue
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.program import Program, load
from service.compiler.kernels.simd.convolution import tiles
from service.compiler.kernels.simd.convolution.conv import conv
from service.compiler.qnn.expressions.requantization import FloatScale
from service.core.models.arrays import Array
from tests.support import emulated
from tests.support.arm_assembly import hot_loop

ARM = [target for target in emulated.CPUS if target.startswith("aarch64")]
_UNEMULATED = " ".join(sorted({emulated.machine_of(target).missing for target in emulated.CPUS}))
needs_emulators = pytest.mark.skipif(bool(_UNEMULATED), reason=_UNEMULATED)

_SIZE = 64


def added(target: str, *, beyond: int = 0) -> Kernel:
    """Builds a kernel that adds a dot product to each accumulator: the product of the four bytes at `beyond` and four
    weights."""
    isa, program = ISAS[target], Program()
    source = program.parameter("source", "uint8", _SIZE + beyond)
    destination = program.parameter("destination", "int32", isa.lanes)
    operand = isa.broadcast(program, source, beyond)
    weights = isa.computed_weights(program, load(source, 0, isa.bytes))
    program.store(destination, 0, isa.dot(load(destination, 0, isa.lanes), operand, weights), isa.lanes)
    return Kernel("added", program.function(), (), 4 * isa.lanes)


def arguments(target: str) -> list[Array]:
    return [np.full(_SIZE, 2, np.uint8), np.full(ISAS[target].lanes, 7, np.int32)]


@needs_emulators
@pytest.mark.parametrize("target", emulated.CPUS)
def test_a_kernel_computes_on_an_emulated_cpu(target: str) -> None:
    source, totals = emulated.call(target, added(target), arguments(target))
    assert (source == 2).all()
    assert (totals == 7 + 4 * 2 * (2 - ISAS[target].operand_zero_point)).all()


@needs_emulators
@pytest.mark.parametrize(
    ("target", "without"),
    [("aarch64+dotprod", "cortex-a53"), ("aarch64+i8mm", "neoverse-n1"), ("riscv64+v", "rv64")],
)
def test_an_instruction_that_a_cpu_lacks_is_illegal(target: str, without: str) -> None:
    with pytest.raises(emulated.Died, match="status -4"):
        emulated.call(target, added(target), arguments(target), cpu=without)


@needs_emulators
def test_a_kernel_that_reads_beyond_an_operand_crashes() -> None:
    with pytest.raises(emulated.Died, match="Segmentation fault"):
        emulated.call("aarch64", added("aarch64", beyond=_SIZE), arguments("aarch64"))


@pytest.mark.parametrize("target", ARM)
@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "size"), [(256, 64, 1, 28), (64, 64, 3, 28), (512, 512, 1, 7)]
)
def test_a_convolution_s_hot_loop_multiplies(target: str, channels: int, filters: int, kernel: int, size: int) -> None:
    """Most instructions of the loop are products. The products multiply by one element of a vector, so no instruction
    broadcasts. No register is spilled, and few instructions are scalar."""
    isa, edge = ISAS[target], kernel // 2
    source = Image(1, size, size, channels, isa.lanes, Halo(*[edge] * 4))
    destination = Image(1, size, size, filters, isa.lanes)
    layer = Layer(source, destination, Window((kernel, kernel), padding=(edge, edge)))
    weights, bias = np.full((filters, kernel, kernel, channels), 7), np.zeros(filters, np.int32)
    epilogue = Epilogue(FloatScale(np.full(filters, 0.01, np.float32), bounded=True), Bounds(3))
    tile = tiles.choose(isa, layer, 2.0)
    loop = hot_loop(target, conv(isa, layer, weights, bias, epilogue, tile, parallel=False))
    assert loop.spills == 0
    usdots = 2 if isa.pairs else 1  # the number of `usdot` that one `usmmla` replaces
    assert usdots * loop.products >= 4 * loop.loads
    assert loop.products >= 7 * loop.vectors
    assert loop.scalars < 10
