"""Means and sums of squares of float32 rows, and the last step of a layer norm, as ONNX Runtime computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.numerics.formula import Scalar, pointwise
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.numerics.sums.real import sums_in
from service.compiler.qnn.numerics.sums.summation import emitted, in_lanes, lowered_lanes
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.real import EIGHTS
from service.core.models.arrays import Array

_QUAD = EIGHTS // 2  # the number of squares after the last whole group of eight that are rounded before they are added


class RealMean:
    """The formula of `qnn.real_mean`."""

    summary = "float32(sum(x) / n) along the last axis, the sum in float64, in 16 partial sums"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
        with np.errstate(all="ignore"):  # real values may be infinite
            means = in_lanes(rows.T)[0] / x.shape[-1]
            return np.asarray(means, np.float32).reshape(*x.shape[:-1], 1)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        count = tirx.const(float(int(x.ty.shape[-1])), "float64")
        return lowered_lanes(operation, builder, x, "float64", lambda total: (total / count).astype("float32"))


class RealSquares:
    """The formula of `qnn.real_squares`."""

    summary = "sum(x * x) along the last axis by float32 fused multiply-adds, in 8 partial sums"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        columns = x.reshape(-1, x.shape[-1]).T
        whole = len(columns) // EIGHTS * EIGHTS
        sums = np.zeros((EIGHTS, columns.shape[1]), np.float32)
        with np.errstate(all="ignore"):  # real values may be infinite
            for first in range(0, whole, EIGHTS):
                part = columns[first : first + EIGHTS]
                sums = fma(part, part, sums)
            while len(sums) > 1:
                half = len(sums) // 2
                sums = sums[:half] + sums[half:]
            total = sums[0]
            for index, part in enumerate(columns[whole:]):
                rounded = index < rounded_squares(len(columns))
                total = total + part * part if rounded else fma(part, part, total)
        return np.asarray(total).reshape(*x.shape[:-1], 1)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        *outer, count = (int(dim) for dim in x.ty.shape)
        whole = count // EIGHTS

        def terms(tensors: Sequence[te.Tensor]) -> tuple[Sequence[tirx.IterVar], Callable[..., Scalar]]:
            step = te.reduce_axis((0, whole), "step")

            def square(*index: Any) -> Scalar:
                element = tensors[0](*index[:-1], step * EIGHTS + index[-1])
                return element * element

            return [step], square

        def joined(x: te.Tensor, *sums: te.Tensor) -> te.Tensor:
            def total(*index: Any) -> Scalar:
                parts = [each(*index[:-1], lane) for each in sums for lane in range(EIGHTS)]
                while len(parts) > 1:
                    half = len(parts) // 2
                    parts = [low + high for low, high in zip(parts[:half], parts[half:], strict=True)]
                added = parts[0] if parts else tirx.const(0.0, "float32")
                for position in range(whole * EIGHTS, count):
                    element = x(*index[:-1], position)
                    if position < whole * EIGHTS + rounded_squares(count):
                        added = added + _fenced(element * element)
                    else:
                        added = tensors.fma(element, element, added)
                return added

            return te.compute([*outer, 1], total, name="squares")

        sums = [builder.emit(sums_in(builder, "eights", [*outer, EIGHTS], terms, [x]))] if whole else []
        return emitted(builder, "squares", joined, x, *sums)


def rounded_squares(count: int) -> int:
    """Returns how many of `count` squares are rounded and then added one by one."""
    return _QUAD if count % EIGHTS >= _QUAD else 0


def _fenced(product: Scalar) -> Scalar:
    """Returns a product that is rounded before it is added."""
    return tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", product)


class RealFma:
    """The formula of `qnn.real_fma`."""

    summary = "float32(a * b + c), rounded once"

    def evaluate(self, operation: Operation, a: Array, b: Array, c: Array) -> Array:
        return fma(a, b, c)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, a: relax.Expr, b: relax.Expr, c: relax.Expr
    ) -> relax.Expr:
        return pointwise(builder, "real_fma", tensors.fma, [a, b, c])
