"""Dynamic quantization, as LiteRT computes models of float32 activations and 8-bit weights.

LiteRT's own kernels quantize one range for each row or sample; XNNPACK one for each row, sample, or pixel of a
convolution of one tap, which it computes as a dense layer. The integers are summed alike, and scaled in different
orders. The formulas were measured on LiteRT 2.3.0, on a CPU that has fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.affine import round_away
from service.compiler.qnn.numerics.formula import Array, Scalar, rounded_away
from service.compiler.qnn.numerics.fused import fma, lowered_fma
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.dynamic import CONV2D, DEPTHWISE, FACTOR, SCALE, ZERO_POINT
from service.compiler.qnn.types import STORAGE_RANGES

_LOW, _HIGH = STORAGE_RANGES["int8"]
_STEPS = 255.0
_FAR = 1024.0  # beyond any stored value less a zero point
_LARGEST = float(np.finfo(np.float32).max)
_LANES = 4  # of LiteRT's vectors


@dataclass(frozen=True)
class Scheme:
    """The quantization of one range.

    Attributes:
        parameters: the smallest and the largest value, zero among them -> scale, zero point and factor.
        lowered: the same in tensor IR.
        to_even: whether halves are rounded to even; else away from zero.
    """

    parameters: Callable[[Array, Array], tuple[Array, Array, Array]]
    lowered: Callable[[Scalar, Scalar], tuple[Scalar, Scalar, Scalar]]
    to_even: bool = False


def _symmetric(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """SymmetricQuantizeFloats (tensor_utils of tflite/kernels/internal)."""
    reach = np.maximum(-low, high)
    reach = np.where(reach == 0, np.float32(127), reach)
    return reach / np.float32(127), np.zeros_like(reach), np.float32(127) / reach


def _lowered_symmetric(low: Scalar, high: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    largest = tirx.max(-low, high)
    steps = _f32(127)
    reach = tirx.Select(largest == _f32(0), steps, largest)
    return reach / steps, _f32(0), steps / reach


def _asymmetric(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """AsymmetricQuantizeFloats (tensor_utils of tflite/kernels/internal); the width of the range is float32, and the
    zero point float64."""
    width = high - low
    steps = np.where(width == 0, 1.0, width.astype(np.float64) / _STEPS)
    below, above = low.astype(np.float64) / steps, high.astype(np.float64) / steps
    point = np.where(abs(_LOW) + np.abs(below) < _HIGH + np.abs(above), _LOW - below, _HIGH - above)
    point = np.where(width == 0, 0.0, round_away(np.clip(point, _LOW, _HIGH)))
    scale = steps.astype(np.float32)
    return scale, point.astype(np.float32), np.float32(1) / scale


def _lowered_asymmetric(low: Scalar, high: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    width = (high - low).astype("float64")
    empty = width == _f64(0)
    steps = tirx.Select(empty, _f64(1), width / _f64(_STEPS))
    below, above = low.astype("float64") / steps, high.astype("float64") / steps
    nearer = _f64(abs(_LOW)) - below < _f64(_HIGH) + above
    point = tirx.Select(nearer, _f64(_LOW) - below, _f64(_HIGH) - above)
    bounded = tirx.max(tirx.min(point, _f64(_HIGH)), _f64(_LOW))
    scale = steps.astype("float32")
    rounded = tirx.Select(empty, _f64(0), rounded_away(bounded, "float64"))
    return scale, rounded.astype("float32"), _f32(1) / scale


def _of_xnnpack(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """xnn_f32_qd8_asymmetric_quantization_params (XNNPACK, reference/packing or src/xnnpack/quantization.h)."""
    with np.errstate(divide="ignore"):
        factor = np.where(low == high, np.float32(1), np.float32(_STEPS) / (high - low)).astype(np.float32)
    below, above = low * factor, high * factor
    error = (np.float32(_LOW) + below) + (np.float32(_HIGH) + above)
    point = np.where(error > 0, np.float32(_LOW) - below, np.float32(_HIGH) - above)
    return np.float32(1) / factor, np.rint(np.clip(point, _LOW, _HIGH)).astype(np.float32), factor


def _lowered_of_xnnpack(low: Scalar, high: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    factor = tirx.Select(low == high, _f32(1), _f32(_STEPS) / (high - low))
    below, above = _rounded(low * factor), _rounded(high * factor)
    error = (_f32(_LOW) + below) + (_f32(_HIGH) + above)
    point = tirx.Select(error > _f32(0), _f32(_LOW) - below, _f32(_HIGH) - above)
    return _f32(1) / factor, tirx.nearbyint(tirx.max(tirx.min(point, _f32(_HIGH)), _f32(_LOW))), factor


def _f32(value: float) -> Scalar:
    return tirx.const(float(value), "float32")


def _f64(value: float) -> Scalar:
    return tirx.const(float(value), "float64")


def _splat(value: float, lanes: int) -> Scalar:
    return tirx.Broadcast(_f32(value), lanes) if lanes > 1 else _f32(value)


def _rounded(product: Scalar) -> Scalar:
    """A finite product that LLVM does not contract with a sum. (It takes a float32 sum in float64 for one in float32,
    and then does.)"""
    return tirx.max(product, _f32(-_LARGEST))


_SYMMETRIC = Scheme(_symmetric, _lowered_symmetric)
_ASYMMETRIC = Scheme(_asymmetric, _lowered_asymmetric)
_OF_XNNPACK = Scheme(_of_xnnpack, _lowered_of_xnnpack, to_even=True)


@dataclass(frozen=True)
class _Hybrid:
    """What LiteRT's kernels do of themselves, or with `delegated`, in its default delegate: that takes all but
    depthwise convolutions."""

    delegated: bool

    def by_delegate(self, operation: Operation) -> bool:
        return self.delegated and str(operation.attr("kernel")) != DEPTHWISE


class Parameter(_Hybrid):
    """qnn.dynamic_parameter."""

    @property
    def summary(self) -> str:
        if self.delegated:
            return "1 / f, round_even(-128 - low * f), f = float(255 / (high - low)); depthwise as LiteRT's own kernels"
        return "symmetric: s = reach / 127, 0; else s = float(high - low) / 255, round_away(-128 - low / s)"

    def evaluate(self, operation: Operation, low: Array, high: Array) -> Array:
        shared = self._shared(operation)
        if shared:
            low, high = (
                np.broadcast_to(extreme(axis=shared, keepdims=True), low.shape) for extreme in (low.min, high.max)
            )
        parts = self._scheme(operation).parameters(np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0)))
        return np.array(parts[_place(operation)])

    def lower(self, operation: Operation, builder: relax.BlockBuilder, low: relax.Expr, high: relax.Expr) -> relax.Expr:
        shape, shared = [int(dim) for dim in operation.call.ty.shape], list(self._shared(operation))
        if shared:
            low, high = (
                builder.emit(extreme(x, axis=shared, keepdims=True))
                for extreme, x in ((relax.op.min, low), (relax.op.max, high))
            )

        def compute(low: te.Tensor, high: te.Tensor) -> te.Tensor:
            def element(*index: Any) -> Scalar:
                return self.express(operation, low[_within(low, index)], high[_within(high, index)])

            return te.compute(shape, element, name="dynamic_parameter")

        return builder.call_te(compute, low, high, primfunc_name_hint="dynamic_parameter")

    def joins_rows(self, operation: Operation) -> bool:
        """Whether a row's parameter depends on other rows."""
        return bool(self._shared(operation))

    def express(self, operation: Operation, low: Scalar, high: Scalar) -> Scalar:
        """The parameter of one range."""
        ends = tirx.min(low, _f32(0)), tirx.max(high, _f32(0))
        return self._scheme(operation).lowered(*ends)[_place(operation)]

    def _scheme(self, operation: Operation) -> Scheme:
        if self.by_delegate(operation):
            return _OF_XNNPACK
        return _SYMMETRIC if operation.flag("symmetric") else _ASYMMETRIC

    def _shared(self, operation: Operation) -> tuple[int, ...]:
        return () if self.by_delegate(operation) else tuple(int(axis) for axis in operation.attr("shared"))


def _place(operation: Operation) -> int:
    """Of the parameter among those that a `Scheme` gives."""
    return (SCALE, ZERO_POINT, FACTOR).index(str(operation.attr("parameter")))


class QuantizeByParameters(_Hybrid):
    """qnn.dynamic_quantize."""

    @property
    def summary(self) -> str:
        return f"z + {'round_even' if self.delegated else 'round_away'}(x * f)"

    def evaluate(self, operation: Operation, x: Array, point: Array, factor: Array) -> Array:
        ratio = np.clip(x * factor, -_FAR, _FAR)
        rounded = np.rint(ratio) if self.by_delegate(operation) else round_away(ratio)
        return np.asarray(np.clip(rounded + point, _LOW, _HIGH).astype(np.int8))

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, point: relax.Expr, factor: relax.Expr
    ) -> relax.Expr:
        def compute(x: te.Tensor, point: te.Tensor, factor: te.Tensor) -> te.Tensor:
            def element(*index: Any) -> Scalar:
                place = _within(point, index)
                return self.express(operation, x[index], point[place], factor[place]).astype("int8")

            return te.compute(x.shape, element, name="dynamic_quantize")

        return builder.call_te(compute, x, point, factor, primfunc_name_hint="dynamic_quantize")

    def express(self, operation: Operation, x: Scalar, point: Scalar, factor: Scalar, lanes: int = 1) -> Scalar:
        """Stored values, as int32."""
        far, low, high = (_splat(value, lanes) for value in (_FAR, _LOW, _HIGH))
        bounded = tirx.max(tirx.min(x * factor, far), -far)
        rounded = tirx.nearbyint(bounded) if self.by_delegate(operation) else rounded_away(bounded)
        stored = tirx.max(tirx.min(rounded + point, high), low)
        return tirx.Cast(f"int32x{lanes}" if lanes > 1 else "int32", stored)


class PadByZeroPoint:
    """qnn.dynamic_pad."""

    summary = "zero points around the image"

    def evaluate(self, operation: Operation, x: Array, point: Array) -> Array:
        top, left, bottom, right = operation.ints("padding", 4, 0)
        shape = [int(dim) for dim in operation.call.ty.shape]
        padded = np.array(np.broadcast_to(point.astype(np.int8), shape))
        padded[:, top : shape[1] - bottom, left : shape[2] - right] = x
        return padded

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, point: relax.Expr) -> relax.Expr:
        top, left, bottom, right = operation.ints("padding", 4, 0)
        shape = [int(dim) for dim in operation.call.ty.shape]

        def compute(x: te.Tensor, point: te.Tensor) -> te.Tensor:
            def element(n: Any, h: Any, w: Any, c: Any) -> Scalar:
                inside = tirx.all(h >= top, h < shape[1] - bottom, w >= left, w < shape[2] - right)
                fill = point[n, 0, 0, 0].astype("int32").astype("int8")
                return tirx.if_then_else(inside, x[n, h - top, w - left, c], fill)

            return te.compute(shape, element, name="dynamic_pad")

        return builder.call_te(compute, x, point, primfunc_name_hint="dynamic_pad")


Order = Callable[[Any, Any, Any], Any]  # sum, scale of the input, scale of the weight -> their product


def _scales_first(acc: Any, scale: Any, weight: Any) -> Any:
    return acc * (scale * weight)


def _weight_first(acc: Any, scale: Any, weight: Any) -> Any:
    return acc * weight * scale


def _input_first(acc: Any, scale: Any, weight: Any) -> Any:
    return acc * scale * weight


class ScaleByParameters(_Hybrid):
    """qnn.dynamic_scale.

    LiteRT's own kernels: FULLY_CONNECTED, and CONV_2D with one scale for its weights, multiply the scales first
    (MatrixBatchVectorMultiplyAccumulate); so does the reference DEPTHWISE_CONV_2D; CONV_2D with many multiplies the sum
    by the weight's, then by the input's (HybridConvPerChannel). The optimized DEPTHWISE_CONV_2D, which the delegate
    leaves its work to, does that too; and channels that do not fill its vectors, it multiplies by the input's first.
    """

    @property
    def summary(self) -> str:
        if self.delegated:
            return "fma(float(acc - z * sum(w)) * s, s_w, bias); depthwise: (acc * s_w) * s + bias"
        return "float(acc - z * sum(w)) * (s * s_w) + bias; (acc * s_w) * s of conv2d with many s_w"

    def evaluate(
        self,
        operation: Operation,
        sums: Array,
        scale: Array,
        point: Array,
        weight_sums: Array,
        weights: Array,
        bias: Array | None = None,
    ) -> Array:
        moved = sums.astype(np.int64) - point.astype(np.int64) * weight_sums
        acc = moved.astype(np.int32).astype(np.float32)
        added = np.zeros_like(weights) if bias is None else bias
        if self.by_delegate(operation):
            return fma(acc * scale, np.broadcast_to(weights, acc.shape), np.broadcast_to(added, acc.shape))
        (order, rest), whole = self._orders(operation), self.whole_vectors(operation)
        vectors = np.arange(acc.shape[-1]) < whole
        scaled = np.where(vectors, order(acc, scale, weights), rest(acc, scale, weights))
        return np.asarray(np.add(scaled, added))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, *operands: relax.Expr) -> relax.Expr:
        shape, (_, rest) = [int(dim) for dim in operation.call.ty.shape], self._orders(operation)
        whole = self.whole_vectors(operation)

        def compute(sums: te.Tensor, *others: te.Tensor) -> te.Tensor:
            def element(*index: Any) -> Scalar:
                operands = [each[_within(each, index[len(index) - len(each.shape) :])] for each in others]
                scaled = self.express(operation, sums[index], *operands)
                if whole == shape[-1]:
                    return scaled
                return tirx.Select(
                    index[-1] < whole, scaled, self.express(operation, sums[index], *operands, order=rest)
                )

            return te.compute(shape, element, name="dynamic_scale")

        return builder.call_te(compute, *operands, primfunc_name_hint="dynamic_scale")

    def express(
        self,
        operation: Operation,
        sums: Scalar,
        scale: Scalar,
        point: Scalar,
        weight_sums: Scalar,
        weights: Scalar,
        bias: Scalar | None = None,
        *,
        lanes: int = 1,
        order: Order | None = None,
    ) -> Scalar:
        """Real values of sums, in whole vectors' order unless another is given."""
        integers, reals = (f"{name}x{lanes}" if lanes > 1 else name for name in ("int32", "float32"))
        acc = tirx.Cast(reals, sums - tirx.Cast(integers, point) * weight_sums)
        added = _splat(0, lanes) if bias is None else bias
        if self.by_delegate(operation):
            return lowered_fma(acc * scale, weights, added, lanes)
        scaled = (order or self._orders(operation)[0])(acc, scale, weights)
        return tirx.max(scaled, _splat(-_LARGEST, lanes)) + added

    def _orders(self, operation: Operation) -> tuple[Order, Order]:
        """That of channels in whole vectors, and that of the others."""
        kernel = str(operation.attr("kernel"))
        if kernel == DEPTHWISE and self.delegated:
            return _weight_first, _input_first
        many = operation.tensor(4)[0] != (1,)
        order = _weight_first if kernel == CONV2D and many else _scales_first
        return order, order

    def whole_vectors(self, operation: Operation) -> int:
        """The channels that fill whole vectors, where the others are scaled in another order; else all."""
        channels, (order, rest) = int(operation.call.ty.shape[-1]), self._orders(operation)
        return channels if order is rest else channels - channels % _LANES


def _within(tensor: te.Tensor, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """`index`, where axes of length 1 are repeated."""
    return tuple(0 if int(dim) == 1 else place for dim, place in zip(tensor.shape, index, strict=True))
