"""Formulas that divide each row by its length."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.numerics.formula import OPAQUE, Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_SCALE_BITS = 7  # the output's scale is 2**-7
_STEPS = 5


class L2Normalize:
    """TFLite (reference/integer_ops/l2normalization.h for int8, reference/l2normalization.h for uint8)."""

    summary = "z + mul((q - z_in) << 7, rsqrt(sum((q - z_in) ** 2))): Newton's iteration in Q3.28; rounded twice"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        centered = x.astype(np.int64) - in_type.zero_point
        lengths, positions = np.unique((centered**2).sum(axis=-1), return_inverse=True)
        inverses = np.array([fixed_point.inverse_square_root(int(length)) for length in lengths], np.int64)
        significand, shift = inverses[positions.reshape(x.shape[:-1])].transpose(-1, *range(x.ndim - 1))[..., None]
        before, after = self._shifts(operation)
        value = (centered << before) << np.maximum(shift + after, 0)
        high = fixed_point.saturating_rounding_doubling_high_mul(value, significand)
        scaled = fixed_point.rounding_divide_by_pot(high, np.maximum(-(shift + after), 0))
        return store(scaled + out_type.zero_point, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        square = builder.emit_te(_squares(in_type.zero_point), x, primfunc_name_hint="squares")
        significand, shift = inverse_square_roots(builder, square)
        before, after = self._shifts(operation)

        def normalize(value: Scalar, significand: Scalar, shift: Scalar) -> Scalar:
            zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
            shifted = (value.astype("int32") - in_type.zero_point) << tirx.const(before, "int32")
            total = shift + tirx.const(after, "int32")
            left = tensors.shift_count(tirx.max(total, zero), "int32", 0, 30)
            high = tensors.high_mul(shifted << left, significand)
            divided = tensors.divide_by_pot(high, tirx.max(-total, one))
            return clamped(tirx.Select(total < zero, divided, high) + out_type.zero_point, out_type)

        return pointwise(builder, "l2_normalize", normalize, [x, significand, shift])

    @staticmethod
    def _shifts(operation: Operation) -> tuple[int, int]:
        """Returns the left shift before the multiplication, and the left shift that is part of the multiplier's shift.
        One of them is the scale's seven bits; the other is 0.
        """
        return (0, _SCALE_BITS) if operation.per_tensor("in_type").dtype == "int8" else (_SCALE_BITS, 0)


def _squares(zero_point: int) -> Any:
    def compute(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, x.shape[-1]), "k")

        def term(*index: Any) -> Scalar:
            centered = x(*index[:-1], k).astype("int32") - zero_point
            return te.sum(centered * centered, axis=k)

        return te.compute([*x.shape[:-1], 1], term, name="squares")

    return compute


def inverse_square_roots(builder: relax.BlockBuilder, x: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """Applies `fixed_point.inverse_square_root` to each int32; returns significands and shifts.

    Each step of the iteration is a separate function. A step contains its operand four times, and tensor IR is a tree,
    so nested steps would grow exponentially.
    """

    def emit(name: str, function: Any, *operands: relax.Expr) -> relax.Expr:
        def compute(*tensors: te.Tensor) -> te.Tensor:
            return te.compute(tensors[0].shape, lambda *at: function(*(tensor(*at) for tensor in tensors)), name=name)

        attrs = {"op_pattern": OPAQUE}
        return builder.emit(builder.call_te(compute, *operands, primfunc_name_hint=name, primfunc_attrs=attrs))

    half, pairs = emit("half", _half, x), emit("pairs", _pairs, x)
    root = emit("start", lambda value: _int64(1 << 28) + _int64(0) * value, half)
    for _ in range(_STEPS):
        root = emit("newton", _step, root, half)
    return emit("significand", _significand, root, pairs, x), emit("shift", _shift, pairs, x)


def _int64(value: int) -> Scalar:
    return tirx.const(value, "int64")


def _mul(a: Scalar, b: Scalar) -> Scalar:
    return (a * b + _int64(1 << 30)) >> _int64(31)


def _clip(value: Scalar) -> Scalar:
    return tirx.max(tirx.min(value, _int64((1 << 31) - 1)), _int64(-(1 << 31)))


def _reduced(value: Scalar) -> Scalar:
    """Returns the value (at least 2), or a quarter of it if it is 2**29 or more."""
    large = value >= tirx.const(1 << 29, "int32")
    return tirx.Select(large, value >> tirx.const(2, "int32"), tirx.max(value, tirx.const(2, "int32")))


def _pairs(value: Scalar) -> Scalar:
    """Returns how many left shifts by two bits leave the top bits free."""
    one = tirx.const(1, "int32")
    return ((tirx.clz(_reduced(value)) - one) >> one) - one


def _half(value: Scalar) -> Scalar:
    doubled = tensors.shift_count((_pairs(value) * tirx.const(2, "int32")).astype("int64"), "int64", 0, 30)
    return (((_reduced(value).astype("int64") << doubled) >> _int64(1)) + _int64(1)) >> _int64(1)


def _step(x: Scalar, half: Scalar) -> Scalar:
    cubed = _clip(_mul(_mul(x, x), x) << _int64(6))
    return _clip((_mul(_int64((1 << 28) + (1 << 27)), x) - _mul(half, cubed)) << _int64(3))


def _right(pairs: Scalar, value: Scalar) -> Scalar:
    large = value >= tirx.const(1 << 29, "int32")
    return tirx.Select(large, tirx.const(12, "int32"), tirx.const(11, "int32")) - pairs


def _significand(x: Scalar, pairs: Scalar, value: Scalar) -> Scalar:
    root, right = _mul(x, _int64(1518500250)), _right(pairs, value)
    left = tensors.shift_count(tirx.max(-right, tirx.const(0, "int32")).astype("int64"), "int64", 0, 8)
    one = value <= tirx.const(1, "int32")
    return tirx.Select(one, _int64((1 << 31) - 1), root << left).astype("int32")


def _shift(pairs: Scalar, value: Scalar) -> Scalar:
    zero = tirx.const(0, "int32")
    return tirx.Select(value <= tirx.const(1, "int32"), zero, -tirx.max(_right(pairs, value), zero))
