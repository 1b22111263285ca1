"""Dynamic quantization, as LiteRT computes models of float32 activations and 8-bit weights.

LiteRT's own kernels use one range for each row or sample. XNNPACK uses one range for each row or sample, or for each
pixel in a 1x1 convolution, which it computes as a dense layer. All kernels compute the same integer sums, and scale
them in different orders. The formulas were measured on LiteRT 2.3.0, on a CPU that has fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.numerics import dynamic
from service.compiler.qnn.numerics.dynamic import HIGH, LOW, Scheme, difference, f32, f64, splat
from service.compiler.qnn.numerics.formula import Scalar
from service.compiler.qnn.numerics.scaling.affine import round_away
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.dynamic import BLOCKS, BUILTIN_CONV2D, BUILTIN_GROUPS, CONV2D, DENSE, DEPTHWISE
from service.core.builds.numerics import XNNPACK
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array

_STEPS = 255.0
_FAR = 1024.0  # a number that is greater than the difference of any stored value and zero point
_LARGEST = float(np.finfo(np.float32).max)
_LANES = 4  # width of LiteRT's vectors


def _symmetric(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """SymmetricQuantizeFloats (tensor_utils of tflite/kernels/internal)."""
    reach = np.maximum(-low, high)
    reach = np.where(reach == 0, np.float32(127), reach)
    return reach / np.float32(127), np.zeros_like(reach), np.float32(127) / reach


def _lowered_symmetric(low: Scalar, high: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    largest = tirx.max(-low, high)
    steps = f32(127)
    reach = tirx.Select(largest == f32(0), steps, largest)
    return reach / steps, f32(0), steps / reach


def _asymmetric(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """AsymmetricQuantizeFloats (tensor_utils of tflite/kernels/internal). The width of the range is float32, and the
    zero point is computed in float64.
    """
    width = high - low
    steps = np.where(width == 0, 1.0, width.astype(np.float64) / _STEPS)
    below, above = low.astype(np.float64) / steps, high.astype(np.float64) / steps
    point = np.where(abs(LOW) + np.abs(below) < HIGH + np.abs(above), LOW - below, HIGH - above)
    point = np.where(width == 0, 0.0, round_away(np.clip(point, LOW, HIGH)))
    scale = steps.astype(np.float32)
    return scale, point.astype(np.float32), np.float32(1) / scale


def _lowered_asymmetric(low: Scalar, high: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    width = (high - low).astype("float64")
    empty = width == f64(0)
    steps = tirx.Select(empty, f64(1), width / f64(_STEPS))
    below, above = low.astype("float64") / steps, high.astype("float64") / steps
    nearer = f64(abs(LOW)) - below < f64(HIGH) + above
    point = tirx.Select(nearer, f64(LOW) - below, f64(HIGH) - above)
    bounded = tirx.max(tirx.min(point, f64(HIGH)), f64(LOW))
    scale = steps.astype("float32")
    rounded = tirx.Select(empty, f64(0), tensors.rounded_away(bounded, "float64"))
    return scale, rounded.astype("float32"), f32(1) / scale


def _of_xnnpack(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """xnn_f32_qd8_asymmetric_quantization_params (XNNPACK, reference/packing or src/xnnpack/quantization.h)."""
    with np.errstate(divide="ignore"):
        factor = np.where(low == high, np.float32(1), np.float32(_STEPS) / (high - low)).astype(np.float32)
    below, above = low * factor, high * factor
    error = (np.float32(LOW) + below) + (np.float32(HIGH) + above)
    point = np.where(error > 0, np.float32(LOW) - below, np.float32(HIGH) - above)
    return np.float32(1) / factor, np.rint(np.clip(point, LOW, HIGH)).astype(np.float32), factor


def _lowered_of_xnnpack(low: Scalar, high: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    factor = tirx.Select(low == high, f32(1), f32(_STEPS) / (high - low))
    below, above = _rounded(low * factor), _rounded(high * factor)
    error = (f32(LOW) + below) + (f32(HIGH) + above)
    point = tirx.Select(error > f32(0), f32(LOW) - below, f32(HIGH) - above)
    return f32(1) / factor, tirx.nearbyint(tirx.max(tirx.min(point, f32(HIGH)), f32(LOW))), factor


def _rounded(product: Scalar, lanes: int = 1) -> Scalar:
    """Returns a finite product in a form that LLVM does not contract with a sum. (A conversion to float64 is not
    enough: LLVM converts the float64 sum of float32 values back to float32 and then contracts it.)
    """
    return tirx.max(product, splat(-_LARGEST, lanes))


_SYMMETRIC = Scheme(_symmetric, _lowered_symmetric)
_ASYMMETRIC = Scheme(_asymmetric, _lowered_asymmetric)
_OF_XNNPACK = Scheme(_of_xnnpack, _lowered_of_xnnpack, to_even=True)


@dataclass(frozen=True)
class _Hybrid:
    """The formulas of LiteRT's own kernels. With `delegated`, the formulas of LiteRT's default delegate, which computes
    everything except depthwise convolutions and some layers with 4-bit weights.
    """

    delegated: bool

    def by_delegate(self, operation: Operation) -> bool:
        kernel = str(operation.attr("kernel"))
        if kernel == BLOCKS and not self.delegated:
            raise UnsupportedOperator(
                "the weights have a scale for each block, which only LiteRT's default delegate reads",
                op=operation.name,
                hint=f"compile with --numerics {XNNPACK}",
            )
        return self.delegated and kernel in (DENSE, CONV2D, BLOCKS)


class Parameter(_Hybrid, dynamic.Parameter):
    """The formula of `qnn.dynamic_parameter`."""

    @property
    def summary(self) -> str:
        if self.delegated:
            return "1 / f, round_even(-128 - low * f), f = float(255 / (high - low)); depthwise as LiteRT's own kernels"
        return "symmetric: s = reach / 127, 0; else s = float(high - low) / 255, round_away(-128 - low / s)"

    def scheme(self, operation: Operation) -> Scheme:
        if self.by_delegate(operation):
            return _OF_XNNPACK
        return _SYMMETRIC if operation.flag("symmetric") else _ASYMMETRIC

    def shared(self, operation: Operation) -> tuple[int, ...]:
        return () if self.by_delegate(operation) else tuple(int(axis) for axis in operation.attr("shared"))


class QuantizeByParameters(_Hybrid, dynamic.QuantizeByParameters):
    """The formula of `qnn.dynamic_quantize`."""

    @property
    def summary(self) -> str:
        return f"z + {'round_even' if self.delegated else 'round_away'}(x * f)"

    def evaluate(self, operation: Operation, x: Array, point: Array, factor: Array) -> Array:
        ratio = np.clip(x * factor, -_FAR, _FAR)
        rounded = round_even(ratio) if self.by_delegate(operation) else round_away(ratio)
        return np.asarray(np.clip(rounded + point, LOW, HIGH).astype(np.int8))

    def express(self, operation: Operation, x: Scalar, point: Scalar, factor: Scalar, lanes: int = 1) -> Scalar:
        far, low, high = (splat(value, lanes) for value in (_FAR, LOW, HIGH))
        bounded = tirx.max(tirx.min(x * factor, far), -far)
        rounded = tirx.nearbyint(bounded) if self.by_delegate(operation) else tensors.rounded_away(bounded)
        stored = tirx.max(tirx.min(rounded + point, high), low)
        return tirx.Cast(f"int32x{lanes}" if lanes > 1 else "int32", stored)


Order = Callable[[Any, Any, Any], Any]  # (sum, input scale, weight scale) -> their product


def _scales_first(acc: Any, scale: Any, weight: Any) -> Any:
    return acc * (scale * weight)


def _weight_first(acc: Any, scale: Any, weight: Any) -> Any:
    return acc * weight * scale


def _input_first(acc: Any, scale: Any, weight: Any) -> Any:
    return acc * scale * weight


class ScaleByParameters(_Hybrid, dynamic.ScaleByParameters):
    """The formula of `qnn.dynamic_scale`.

    Order of the multiplications in LiteRT's own kernels:
    - FULLY_CONNECTED, and CONV_2D with one weight scale, multiply the two scales first
      (MatrixBatchVectorMultiplyAccumulate). The reference DEPTHWISE_CONV_2D does the same.
    - CONV_2D with many weight scales multiplies the sum by the weight scale, then by the input scale
      (HybridConvPerChannel). The optimized kernel of CONV_2D in one group multiplies the two scales first. The
      optimized DEPTHWISE_CONV_2D multiplies by the weight scale first, which LiteRT uses beside the delegate; but it
      multiplies the channels after its last whole vector by the input scale first.
    """

    @property
    def summary(self) -> str:
        if self.delegated:
            return "fma(float(acc - z * sum(w)) * s, s_w, bias); depthwise: (acc * s_w) * s + bias"
        return "float(acc - z * sum(w)) * (s * s_w) + bias; (acc * s_w) * s of conv2d with many s_w"

    def scaled(self, operation: Operation, acc: Array, scale: Array, weights: Array, bias: Array | None) -> Array:
        added = np.zeros_like(weights) if bias is None else bias
        if self.by_delegate(operation):
            return fma(acc * scale, weights, added)
        (order, rest), whole = self._orders(operation), self.whole_vectors(operation)
        vectors = np.arange(acc.shape[-1]) < whole
        return np.asarray(np.where(vectors, order(acc, scale, weights), rest(acc, scale, weights)) + added)

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
    ) -> Scalar:
        acc, added = difference(sums, point, weight_sums, lanes), splat(0, lanes) if bias is None else bias
        if self.by_delegate(operation):
            return tensors.fma(acc * scale, weights, added, lanes)
        order, _ = self._orders(operation)
        return _rounded(order(acc, scale, weights), lanes) + added

    def express_rest(self, operation: Operation, sums: Scalar, *operands: Scalar) -> Scalar:
        scale, point, weight_sums, weights, *bias = operands
        _, order = self._orders(operation)
        scaled = order(difference(sums, point, weight_sums, 1), scale, weights)
        return _rounded(scaled) + (bias[0] if bias else f32(0))

    def whole_vectors(self, operation: Operation) -> int:
        channels, (order, rest) = super().whole_vectors(operation), self._orders(operation)
        return channels if order is rest else channels - channels % _LANES

    def _orders(self, operation: Operation) -> tuple[Order, Order]:
        """Returns the multiplication order for channels in whole vectors, and the order for the remaining channels."""
        kernel = str(operation.attr("kernel"))
        if kernel == DEPTHWISE and self.delegated:
            return _weight_first, _input_first
        many = operation.tensor(4)[0] != (1,)
        weight_first = (CONV2D, BUILTIN_GROUPS) if self.delegated else (CONV2D, BUILTIN_CONV2D, BUILTIN_GROUPS)
        order = _weight_first if kernel in weight_first and many else _scales_first
        return order, order
