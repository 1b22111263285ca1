"""Dynamic quantization: activations are quantized while the model runs, by a scale and a zero point computed from them.

This module contains the part that all runtimes share. `litert.dynamic` and `torch.dynamic` define how those runtimes
round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.formula import Scalar
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.dynamic import FACTOR, SCALE, ZERO_POINT
from service.compiler.qnn.types import STORAGE_RANGES
from service.core.models.arrays import Array

LOW, HIGH = STORAGE_RANGES["int8"]


@dataclass(frozen=True)
class Scheme:
    """How a range determines the quantization parameters.

    Attributes:
        parameters: maps the smallest and the largest value (the range includes zero) to the scale, the zero point and
            the factor.
        lowered: the same in tensor IR.
        to_even: true if halves are rounded to even, false if they are rounded away from zero.
    """

    parameters: Callable[[Array, Array], tuple[Array, Array, Array]]
    lowered: Callable[[Scalar, Scalar], tuple[Scalar, Scalar, Scalar]]
    to_even: bool = False


class Parameter(ABC):
    """The formula of `qnn.dynamic_parameter`."""

    @abstractmethod
    def scheme(self, operation: Operation) -> Scheme: ...

    def shared(self, operation: Operation) -> tuple[int, ...]:
        """Returns the axes along which one range is shared."""
        return ()

    def evaluate(self, operation: Operation, low: Array, high: Array) -> Array:
        shared = self.shared(operation)
        if shared:
            low, high = (
                np.broadcast_to(extreme(axis=shared, keepdims=True), low.shape) for extreme in (low.min, high.max)
            )
        parts = self.scheme(operation).parameters(np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0)))
        return np.array(parts[_place(operation)])

    def lower(self, operation: Operation, builder: relax.BlockBuilder, low: relax.Expr, high: relax.Expr) -> relax.Expr:
        shape, shared = [int(dim) for dim in operation.call.ty.shape], list(self.shared(operation))
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
        """Returns true if the parameter of a row also depends on other rows."""
        return bool(self.shared(operation))

    def express(self, operation: Operation, low: Scalar, high: Scalar) -> Scalar:
        """Returns the parameter of one range, in tensor IR."""
        ends = tirx.min(low, f32(0)), tirx.max(high, f32(0))
        return self.scheme(operation).lowered(*ends)[_place(operation)]


def _place(operation: Operation) -> int:
    """Returns the index of the parameter in the tuple that a `Scheme` computes."""
    return (SCALE, ZERO_POINT, FACTOR).index(str(operation.attr("parameter")))


class QuantizeByParameters(ABC):
    """The formula of `qnn.dynamic_quantize`."""

    @abstractmethod
    def evaluate(self, operation: Operation, x: Array, point: Array, factor: Array) -> Array: ...

    @abstractmethod
    def express(self, operation: Operation, x: Scalar, point: Scalar, factor: Scalar, lanes: int = 1) -> Scalar:
        """Returns stored values, as int32."""

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, point: relax.Expr, factor: relax.Expr
    ) -> relax.Expr:
        def compute(x: te.Tensor, point: te.Tensor, factor: te.Tensor) -> te.Tensor:
            def element(*index: Any) -> Scalar:
                position = _within(point, index)
                return self.express(operation, x[index], point[position], factor[position]).astype("int8")

            return te.compute(x.shape, element, name="dynamic_quantize")

        return builder.call_te(compute, x, point, factor, primfunc_name_hint="dynamic_quantize")


class PadByZeroPoint:
    """The formula of `qnn.dynamic_pad`."""

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


class ScaleByParameters(ABC):
    """The formula of `qnn.dynamic_scale`."""

    @abstractmethod
    def scaled(self, operation: Operation, acc: Array, scale: Array, weights: Array, bias: Array | None) -> Array:
        """Returns the real values of sums, as float32."""

    @abstractmethod
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
        """Returns the real values of sums, for the channels that fill whole vectors."""

    def express_rest(self, operation: Operation, sums: Scalar, *operands: Scalar) -> Scalar:
        """Returns the real values of sums, for the channels that do not fill a whole vector."""
        return self.express(operation, sums, *operands)

    def whole_vectors(self, operation: Operation) -> int:
        """Returns the number of channels that fill whole vectors, if the runtime multiplies the remaining channels by
        the two scales in a different order; otherwise returns the number of all channels.
        """
        return int(operation.call.ty.shape[-1])

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
        return self.scaled(operation, moved.astype(np.int32).astype(np.float32), scale, weights, bias)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, *operands: relax.Expr) -> relax.Expr:
        shape, whole = [int(dim) for dim in operation.call.ty.shape], self.whole_vectors(operation)

        def compute(sums: te.Tensor, *others: te.Tensor) -> te.Tensor:
            def element(*index: Any) -> Scalar:
                operands = [each[_within(each, index[len(index) - len(each.shape) :])] for each in others]
                scaled = self.express(operation, sums[index], *operands)
                if whole == shape[-1]:
                    return scaled
                return tirx.Select(index[-1] < whole, scaled, self.express_rest(operation, sums[index], *operands))

            return te.compute(shape, element, name="dynamic_scale")

        return builder.call_te(compute, *operands, primfunc_name_hint="dynamic_scale")


def difference(sums: Scalar, point: Scalar, weight_sums: Scalar, lanes: int) -> Scalar:
    """Returns sums less the contribution of the zero point, as float32."""
    integers, reals = (f"{name}x{lanes}" if lanes > 1 else name for name in ("int32", "float32"))
    return tirx.Cast(reals, sums - tirx.Cast(integers, point) * weight_sums)


def f32(value: float) -> Scalar:
    return tirx.const(float(value), "float32")


def f64(value: float) -> Scalar:
    return tirx.const(float(value), "float64")


def splat(value: float, lanes: int) -> Scalar:
    return tirx.Broadcast(f32(value), lanes) if lanes > 1 else f32(value)


def _within(tensor: te.Tensor, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns `index` with 0 for axes of length 1, along which the tensor is repeated."""
    return tuple(0 if int(dim) == 1 else position for dim, position in zip(tensor.shape, index, strict=True))
