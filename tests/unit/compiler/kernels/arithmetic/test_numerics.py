"""Each formula gets the epilogue that computes it. Formulas and types without a kernel are declined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import relax

from service.compiler.kernels.arithmetic.epilogue import Bounds
from service.compiler.kernels.arithmetic.fused import FusedScale
from service.compiler.kernels.arithmetic.numerics import addition, bounds, requantization
from service.compiler.kernels.kernel import Declined
from service.compiler.qnn import graph, ops
from service.compiler.qnn.expressions.requantization import DoubleRounding, FloatScale, Requantization, SingleRounding
from service.compiler.qnn.expressions.sums import SharedShiftSum
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.numerics.functions.softmax import TableSoftmax
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from tests.support.qnn_models import i8, module_of, u8

REFERENCE, FLOAT = get_mode(LITERT_REFERENCE), get_mode(XNNPACK)
IN_TYPE, WEIGHT_TYPE = i8(1.0, 3), QuantizedType("int8", (0.5, 0.25, 0.125), axis=0)


def requantized(out_scale: float, *, dense: bool = False, weight: int = 100, bias: int = 0) -> Operation:
    """Returns the `qnn.requantize` of the accumulators of a layer with 4 input channels and 3 filters."""
    out_type = i8(out_scale)

    def body(emit, xs):  # type: ignore[no-untyped-def]
        constant = relax.const(np.full((3, 4) if dense else (3, 1, 1, 4), weight, np.int8))
        arguments = (xs[0], constant, relax.const(np.full(3, bias, np.int32)), IN_TYPE, WEIGHT_TYPE)
        sums = emit(ops.dense(*arguments) if dense else ops.conv2d(*arguments))
        return emit(ops.requantize(sums, accumulator_type(IN_TYPE, WEIGHT_TYPE, 1 if dense else 3), out_type))

    module = module_of([((2, 4) if dense else (1, 2, 2, 4), "int8")], body)
    *_, operation = (found for _, _, found in graph.operations(graph.main_of(module)) if found is not None)
    return operation


def test_each_mode_has_its_own_rounding() -> None:
    def of(mode: Mode, scale: float = 8.0, *, dense: bool = False, bias: int = 0) -> type[Requantization]:
        return type(requantization(mode, requantized(scale, dense=dense, bias=bias), 16, stored=True))

    assert of(REFERENCE) is DoubleRounding  # powers of two have no fused scale
    assert of(REFERENCE, dense=True) is FusedScale
    assert of(REFERENCE, 3e6, dense=True, bias=2**31 - 1) is SingleRounding  # the sums have more bits than float32
    assert of(FLOAT) is of(FLOAT, dense=True) is FloatScale


def test_blocks_are_extended_with_shifts_that_occur() -> None:
    scaled = requantization(REFERENCE, requantized(8.0), 16, stored=True)
    assert isinstance(scaled, DoubleRounding)
    assert scaled.shifts.tolist() == [-3, -4, *[-5] * 14]


def test_a_product_is_bounded_only_if_it_fits_int32_for_every_accumulator() -> None:
    def bounded(operation: Operation) -> bool:
        scaled = requantization(FLOAT, operation, 16, stored=True)
        assert isinstance(scaled, FloatScale)
        return scaled.bounded

    # The largest accumulator is 4 * 100 * (127 - 3) = 49600, and the largest scale is 0.5 / out_scale.
    assert bounded(requantized(0.5 * 49600 / 2**31 * 1.001))
    assert not bounded(requantized(0.5 * 49600 / 2**31))
    assert not bounded(requantized(0.25, bias=2**31 - 49600))  # a sum that wraps can be any int32


def test_a_dense_layer_that_scales_up_is_declined() -> None:
    with pytest.raises(Declined, match="scale of 1 or more"):
        requantization(REFERENCE, requantized(1e-7, dense=True), 16, stored=True)


def test_an_operand_that_no_layer_accumulated_is_declined() -> None:
    x = relax.Var("x", relax.TensorType([1, 2, 2, 4], "int8"))
    with pytest.raises(Declined, match="not the result of a convolution"):
        requantization(FLOAT, Operation(ops.requantize(x, IN_TYPE, i8(0.1))), 16, stored=True)


def test_a_formula_without_a_kernel_is_declined() -> None:
    unknown = replace(FLOAT, formulas={**FLOAT.formulas, "conv2d+requantize": TableSoftmax(), "add": TableSoftmax()})
    with pytest.raises(Declined, match="exp from a table"):
        requantization(unknown, requantized(8.0), 16, stored=True)
    with pytest.raises(Declined, match="exp from a table"):
        addition(unknown, added(), residual_is_lhs=False)


def added() -> Operation:
    x = relax.Var("x", relax.TensorType([1, 2, 2, 4], "int8"))
    return Operation(ops.add(x, x, i8(0.5, 5), i8(0.25, -7), i8(0.5)))


@pytest.mark.parametrize(("residual_is_lhs", "zero_point"), [(True, 128 + 5), (False, 128 - 7)])
def test_the_residual_may_be_either_operand(residual_is_lhs: bool, zero_point: int) -> None:
    shared = addition(FLOAT, added(), residual_is_lhs)
    assert isinstance(shared, SharedShiftSum)
    multipliers = (1 << 19, 1 << 20) if residual_is_lhs else (1 << 20, 1 << 19)
    assert (shared.multiplier, shared.residual_multiplier, shared.shift) == (*multipliers, 20)
    assert shared.bias == (1 << 19) - multipliers[1] * zero_point
    # XNNPACK's multipliers are the exact factors. LiteRT's reference mode rounds halves away from zero, so its
    # multipliers are slightly larger than the exact factors, but have the same ratio.
    fixed = addition(REFERENCE, added(), residual_is_lhs)
    assert isinstance(fixed, SharedShiftSum)
    factors = [round(factor / multipliers[0] * 2**20, 4) for factor in (fixed.multiplier, fixed.residual_multiplier)]
    assert factors[1] / factors[0] == multipliers[1] / multipliers[0]


def test_signed_types_are_stored_128_higher() -> None:
    assert bounds(QuantizedType("int8", (1.0,), (-3,), None, -100, 27)) == Bounds(125, 28, 155)
    assert bounds(u8(1.0, 3)) == Bounds(3, 0, 255)


@pytest.mark.parametrize("quantized", [QuantizedType("int16", (1.0,)), QuantizedType("int8", (1.0,), axis=0)], ids=str)
def test_other_activations_are_declined(quantized: QuantizedType) -> None:
    with pytest.raises(Declined, match="8 bits with one scale"):
        bounds(quantized)
