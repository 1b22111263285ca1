"""Sums of products of two computed matrices: the same integers in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.formula import OPAQUE, Scalar
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array


class MatMul:
    """The formula of `qnn.matmul`."""

    summary = "sum((a - za) * (b - zb)), exact"

    def evaluate(self, operation: Operation, a: Array, b: Array, length: Array | None = None) -> Array:
        """Computes in float64, which represents every sum of fewer than 2**37 products of 8-bit values, or 2**22
        products of 16-bit values, exactly.
        """
        if length is not None:
            a, b = first_products(a, b, length)
        lhs, rhs = (
            x.astype(np.float64) - operation.per_tensor(name).zero_point
            for x, name in ((a, "lhs_type"), (b, "rhs_type"))
        )
        sums = lhs @ rhs
        if operation.is_simulated:
            return np.asarray(sums.astype(np.float32))
        return np.asarray(sums.astype(np.int64).astype(str(operation.attr("accum_dtype"))))

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        a: relax.Expr,
        b: relax.Expr,
        length: relax.Expr | None = None,
    ) -> relax.Expr:
        """Emits floating-point products, which processors compute four times as fast as 32-bit integer products. The
        results are exact: the floating-point type is chosen so that a sum of all products fits its significand.
        """
        lhs_type, rhs_type = (operation.per_tensor(name) for name in ("lhs_type", "rhs_type"))
        depth = int(a.ty.shape[-1])
        real = "float32" if depth * _largest(lhs_type) * _largest(rhs_type) <= 1 << 24 else "float64"
        lhs, rhs = (_centered(builder, x, kind.zero_point, real) for x, kind in ((a, lhs_type), (b, rhs_type)))
        shape = [int(dim) for dim in operation.call.ty.shape]

        def products(a: te.Tensor, b: te.Tensor, *length: te.Tensor) -> te.Tensor:
            k = te.reduce_axis((0, depth), "k")

            def at(x: te.Tensor, batch: tuple[Any, ...], row: Any, column: Any) -> Scalar:
                own = batch[len(batch) - len(x.shape) + 2 :]
                positions = [0 if int(dim) == 1 else index for dim, index in zip(x.shape, own, strict=False)]
                return x(*positions, row, column)

            def term(*index: Any) -> Scalar:
                *batch, row, column = index
                factors = at(a, tuple(batch), row, k), at(b, tuple(batch), k, column)
                if length:
                    factors = within(k, length[0][0], *factors)
                return te.sum(factors[0] * factors[1], axis=k)

            sums = te.compute(shape, term, name="matmul")
            dtype = str(operation.attr("accum_dtype"))
            return te.compute(shape, lambda *index: sums(*index).astype(dtype), name="stored")

        operands = [lhs, rhs] if length is None else [lhs, rhs, length]
        return builder.call_te(products, *operands, primfunc_name_hint="matmul")


def first_products(a: Array, b: Array, length: Array) -> tuple[Array, Array]:
    """Returns the first columns of `a` and the first rows of `b`."""
    count = int(length[0])
    return a[..., :count], b[..., :count, :]


def within(k: Any, count: Any, a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """Returns the factors of product number `k`. From product number `count` on, these are 0 and -0, whose product does
    not change a sum, not even one of -0.
    """
    zero, negative = (tirx.const(value, str(a.ty.dtype)) for value in (0.0, -0.0))
    return tirx.if_then_else(k < count, a, zero), tirx.if_then_else(k < count, b, negative)


def _largest(kind: QuantizedType) -> int:
    """Returns the largest magnitude of a stored value less the zero point."""
    low, high = STORAGE_RANGES[kind.dtype]
    return max(high - kind.zero_point, kind.zero_point - low)


def _centered(builder: relax.BlockBuilder, x: relax.Expr, zero_point: int, dtype: str) -> relax.Expr:
    """Emits the conversion as a separate function, so that each value is converted once. If the conversion were fused
    into the product, it would be repeated for every product.
    """

    def convert(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *index: (x(*index).astype("int32") - zero_point).astype(dtype), name="center")

    return builder.emit(builder.call_te(convert, x, primfunc_name_hint="center", primfunc_attrs={"op_pattern": OPAQUE}))
