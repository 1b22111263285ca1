"""Sums of products of two computed matrices: the same integers in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te

from service.compiler.qnn.numerics.formula import Array, Scalar
from service.compiler.qnn.operation import Operation


class MatMul:
    """qnn.matmul."""

    summary = "sum((a - za) * (b - zb)), exact"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        """In float64, which holds every sum of fewer than 2**37 products of 8-bit values."""
        lhs, rhs = (
            x.astype(np.float64) - operation.per_tensor(name).zero_point
            for x, name in ((a, "lhs_type"), (b, "rhs_type"))
        )
        return np.asarray((lhs @ rhs).astype(np.int64).astype(np.int32))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        lhs_point, rhs_point = (operation.per_tensor(name).zero_point for name in ("lhs_type", "rhs_type"))
        shape = [int(dim) for dim in operation.call.ty.shape]

        def products(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            k = te.reduce_axis((0, a.shape[-1]), "k")

            def at(x: te.Tensor, batch: tuple[Any, ...], row: Any, column: Any) -> Scalar:
                own = batch[len(batch) - len(x.shape) + 2 :]
                places = [0 if int(dim) == 1 else index for dim, index in zip(x.shape, own, strict=False)]
                return x(*places, row, column).astype("int32")

            def term(*index: Any) -> Scalar:
                *batch, row, column = index
                left = at(a, tuple(batch), row, k) - lhs_point
                return te.sum(left * (at(b, tuple(batch), k, column) - rhs_point), axis=k)

            return te.compute(shape, term, name="matmul")

        return builder.call_te(products, a, b, primfunc_name_hint="matmul")
