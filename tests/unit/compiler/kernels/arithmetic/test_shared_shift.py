"""An addition with one common shift equals TFLite's addition for every pair of operands, or is not used."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.arithmetic.numerics import addition, bounds
from service.compiler.qnn import ops
from service.compiler.qnn.expressions.sums import Addition, FixedPointSum, SharedShiftSum
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.builds.numerics import LITERT_REFERENCE
from tests.support.examples import examples
from tests.support.images import quantized_types
from tests.support.qnn_models import float32, u8

MODE = get_mode(LITERT_REFERENCE)
EXAMPLES = settings(max_examples=examples(60), deadline=None)
# Scales of operands relative to the scale of the sum, as they occur in models.
SCALES = st.floats(0.3, 2.0).map(float32) | st.sampled_from([0.5, 1.0, 2.0])


def chosen(types: tuple[QuantizedType, ...], residual_is_lhs: bool = False) -> tuple[Operation, Addition]:
    x = relax.Var("x", relax.TensorType([1, 16], types[0].storage))
    operation = Operation(ops.add(x, x, *types))
    return operation, addition(MODE, operation, residual_is_lhs)


@EXAMPLES
@given(st.data(), st.sampled_from(["int8", "uint8"]), st.booleans())
def test_every_pair_of_operands(data: st.DataObject, storage: str, residual_is_lhs: bool) -> None:
    lhs, rhs, out = types = tuple(data.draw(quantized_types(storage, data.draw(SCALES))) for _ in range(3))
    operation, shared = chosen(types, residual_is_lhs)
    if isinstance(shared, FixedPointSum):
        return
    assert isinstance(shared, SharedShiftSum)
    low, high = STORAGE_RANGES[storage]
    every = np.arange(low, high + 1)
    a, b = (values.astype(storage) for values in np.meshgrid(every, every, indexing="ij"))
    expected = MODE.formula(operation).evaluate(operation, a, b)
    (value, value_type), (residual, _) = ((b, rhs), (a, lhs)) if residual_is_lhs else ((a, lhs), (b, rhs))
    value_term = (value.astype(np.int64) - value_type.zero_point) * shared.multiplier
    residual_term = (residual.astype(np.int64) - low) * shared.residual_multiplier  # as stored
    products = value_term + residual_term
    for partial in (value_term, residual_term, products, products + shared.bias, shared.bias):
        assert np.abs(partial).max() < 1 << 31
    own = bounds(out)
    result = np.clip(((products + shared.bias) >> shared.shift) + own.zero_point, own.low, own.high) + low
    np.testing.assert_array_equal(result, expected)


def test_operands_with_usual_scales_share_a_shift() -> None:
    rng = np.random.default_rng(0)
    found = [
        chosen(tuple(u8(float32(scale), int(zero)) for scale, zero in zip(scales, zeros, strict=True)))[1]
        for scales, zeros in zip(rng.uniform(0.5, 1.5, (30, 3)), rng.integers(0, 255, (30, 3)), strict=True)
    ]
    assert sum(isinstance(each, SharedShiftSum) for each in found) >= 28


def test_sums_far_beyond_eight_bits_use_the_fixed_point_formula() -> None:
    assert isinstance(chosen((u8(1.0, 3), u8(0.7, 5), u8(1e-9, 9)))[1], FixedPointSum)
