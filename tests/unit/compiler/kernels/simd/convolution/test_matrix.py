"""Convolutions and dense layers with AMX's tiles equal the oracle of every mode, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.arithmetic.epilogue import Bounds, Epilogue
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.simd.convolution.matrix import finished_at_once, matrix
from service.compiler.kernels.simd.convolution.matrix_schemes import Scheme, ranked
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.expressions.requantization import FloatScale
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.targets import codegen_target
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.target import parse_target
from tests.support.examples import examples
from tests.support.images import RUNNABLE, Draw, at_a_wall, built
from tests.support.layers import Case, convolution, dense

import tvm  # isort: skip
from tests.support.matrix_layers import ISA, NAME, layer_of
from tests.support.qnn_models import STORED_MODES

runs_here = pytest.mark.skipif(ISA not in RUNNABLE, reason="NOT TESTED: this CPU has no AMX")
EXAMPLES = settings(max_examples=examples(40), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))


def holds(draw: Draw, mode: str, make: Callable[[Draw, Isa, Mode], Case]) -> None:
    """Checks a layer against the oracle, with any of its schemes."""
    try:
        case = make(draw, ISA, get_mode(mode))
    except Declined:
        assert mode == LITERT_REFERENCE  # this mode has no kernel for dense layers with scales of 1 or more
        return
    schemes = ranked(ISA, case.layer, 2.0)
    assume(schemes)
    _, scheme = draw(st.sampled_from(schemes))
    operands = case.weights, case.bias, case.epilogue
    case.check(ISA, matrix(ISA, case.layer, *operands, scheme, parallel=draw(st.booleans())))


@runs_here
@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES))
def test_convolution(data: st.DataObject, mode: str) -> None:
    holds(data.draw, mode, convolution)


@runs_here
@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES))
def test_dense(data: st.DataObject, mode: str) -> None:
    holds(data.draw, mode, dense)


def small(*, weight: int = 7, scale: float = 0.01, out: Bounds | None = None) -> Kernel:
    """Returns the kernel of a 3x3 convolution on 8x8 pixels of 64 channels. Both images have a halo."""
    epilogue = Epilogue(FloatScale(np.full(64, scale, np.float32), bounded=True), out or Bounds(3))
    operands = np.full((64, 3, 3, 64), weight), np.zeros(64, np.int32), epilogue
    return matrix(ISA, layer_of(8, 64, 3), *operands, Scheme(8, 8, 2, 2, 1, separate=False), parallel=False)


def test_products_are_of_tiles() -> None:
    """The assembly is generated on any machine, with or without AMX."""
    module = tvm.IRModule({"kernel": small().tensor_program.with_attr("global_symbol", "kernel")})
    target = tvm.target.Target(dict(codegen_target(parse_target(NAME)).llvm))
    assembly = tvm.tirx.build(module, target=target).inspect_source("asm")
    assert assembly.count("tdpbusd") >= 4
    assert assembly.count("ldtilecfg") == assembly.count("tilerelease") == 1
    assert "vpdpbusd" not in assembly


def test_layers_that_differ_in_numbers_share_their_code() -> None:
    assert small().content == small(weight=-3, scale=0.5, out=Bounds(200)).content


@runs_here
def test_memory_after_a_buffer_is_not_accessed() -> None:
    """A kernel that accesses memory after the end of a buffer crashes the test run."""
    kernel = small()
    source, destination = (at_a_wall(kernel.output_bytes, "uint8") for _ in range(2))
    source[:] = 1
    arguments = [tvm.runtime.tensor(constant) for constant in kernel.constants]
    built(ISA, kernel)(tvm.runtime.from_dlpack(source), *arguments, tvm.runtime.from_dlpack(destination))
    assert destination[0] == 3


@pytest.mark.parametrize(("rows", "columns"), [(1, 7), (4, 8), (5, 1), (2, 3), (1, 196), (1, 1)])
def test_the_epilogue_does_not_exceed_the_panel(rows: int, columns: int) -> None:
    high, wide = finished_at_once(rows, columns)
    assert 1 <= high <= rows
    assert 1 <= wide <= columns
