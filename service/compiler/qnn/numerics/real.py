"""Sums of products of float32 values by fused multiply-adds, in one order, so that a result does not depend on how it
is computed. Runtimes that add in another order, or in parts, come within rounding of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tvm import relax, s_tir, te, tirx

from service.compiler.qnn.numerics.formula import OPAQUE, Array, Scalar
from service.compiler.qnn.numerics.fused import lowered_fma, products_are_coarse, sum_of_products
from service.compiler.qnn.operation import Operation

_BLOCK = 1 << 14  # sums that are computed at a time, so that they stay in the second level of cache
_BLOCK_COLUMNS = 512


class RealConv2d:
    """qnn.real_conv2d."""

    summary = "float32(sum(x * w) + bias), the sum from 0 on by float32 fused multiply-adds, channels innermost"

    def evaluate(self, operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """Row by row of the kernel, column by column, channel by channel; some rows of the output at a time."""
        filters, *_, per_group = weight.shape
        groups = operation.integer("groups")
        (down, _), (step, _) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
        top, left, bottom, right = operation.ints("padding", 4, 0)
        padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
        padded = padded.reshape(*padded.shape[:3], groups, per_group).astype(np.float64)
        own = weight.reshape(groups, filters // groups, *weight.shape[1:]).astype(np.float64)
        n, height, width, _ = (int(dim) for dim in operation.call.ty.shape)
        coarse, reach = products_are_coarse(x, weight), step * (weight.shape[1] - 1) + 1
        rows = max(1, _BLOCK // (n * width * filters))
        sums = np.empty((n, height, width, groups, filters // groups), np.float32)
        for first in range(0, height, rows):
            part = sums[:, first : first + rows]
            window = padded[:, first * down : (first + part.shape[1] - 1) * down + reach]
            part[...] = sum_of_products(part.shape, _taps(operation, window, own, part.shape), coarse=coarse)
        return _biased(sums.reshape(n, height, width, filters), bias)

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None = None,
    ) -> relax.Expr:
        top, left, bottom, right = operation.ints("padding", 4, 0)
        if top or left or bottom or right:
            x = builder.emit(relax.op.nn.pad(x, [0, 0, top, bottom, left, right, 0, 0]))
        return lowered_sums(operation, builder, _terms(operation), [x, weight], bias)


class RealMatMul:
    """qnn.real_matmul."""

    summary = "float32(sum(a * b) + bias), the sum from 0 on by float32 fused multiply-adds"

    def evaluate(self, operation: Operation, a: Array, b: Array, bias: Array | None = None) -> Array:
        """A block of rows and columns at a time."""
        shape = tuple(int(dim) for dim in operation.call.ty.shape)
        lhs, rhs = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (a, b))
        coarse, sums = products_are_coarse(a, b), np.empty(shape, np.float32)
        columns = min(shape[-1], _BLOCK_COLUMNS)
        rows = max(1, _BLOCK // columns)
        for image in np.ndindex(shape[:-2]):
            left, right, made = lhs[image].astype(np.float64), rhs[image].astype(np.float64), sums[image]
            for row in range(0, shape[-2], rows):
                for column in range(0, shape[-1], columns):
                    part = made[row : row + rows, column : column + columns]
                    taken = left[row : row + rows], right[:, column : column + columns]
                    part[...] = sum_of_products(part.shape, _outer(*taken), coarse=coarse)
        return _biased(sums, bias)

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        a: relax.Expr,
        b: relax.Expr,
        bias: relax.Expr | None = None,
    ) -> relax.Expr:
        return lowered_sums(operation, builder, _products, [a, b], bias)


def _outer(lhs: Array, rhs: Array) -> Iterator[tuple[Array, Array]]:
    columns = np.ascontiguousarray(lhs.T)[:, :, np.newaxis]
    return zip(columns, rhs[:, np.newaxis], strict=True)


def _taps(operation: Operation, window: Array, own: Array, shape: tuple[int, ...]) -> Iterator[tuple[Array, Array]]:
    """Elements under each tap and channel `[N, H, W, G, 1]`, and their filters' weights `[G, O / G]`.

    Args:
        window: `[N, …, …, G, C / G]`, with padding.
        own: `[G, O / G, KH, KW, C / G]`.
    """
    _, height, width, *_ = shape
    (down, right), (step_h, step_w) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
    for i, j in np.ndindex(own.shape[2:4]):
        rows = slice(i * step_h, i * step_h + (height - 1) * down + 1, down)
        columns = slice(j * step_w, j * step_w + (width - 1) * right + 1, right)
        elements = np.ascontiguousarray(np.moveaxis(window[:, rows, columns], -1, 0))
        for c, element in enumerate(elements):
            yield element[..., np.newaxis], own[:, :, i, j, c]


def _biased(sums: Array, bias: Array | None) -> Array:
    with np.errstate(all="ignore"):
        return sums if bias is None else np.asarray(sums + bias)


# -- in tensor IR

# The reduced axes, and a product as a function of the place of its sum, of operands.
Terms = Callable[[Sequence[te.Tensor]], tuple[Sequence[tirx.IterVar], Callable[..., Scalar]]]


def lowered_sums(
    operation: Operation,
    builder: relax.BlockBuilder,
    terms: Terms,
    operands: Sequence[relax.Expr],
    bias: relax.Expr | None,
) -> relax.Expr:
    """Sums of products as a tensor program of its own, in the form that `schedule` knows.

    Tensor expressions cannot say that a product is added without being rounded; so the sum is written as usual, and its
    one addition replaced.
    """
    shape = [int(dim) for dim in operation.call.ty.shape]
    operands = [*operands, *([] if bias is None else [bias])]
    tensors = [te.placeholder([int(dim) for dim in x.ty.shape], "float32", f"x{at}") for at, x in enumerate(operands)]
    axes, term = terms(tensors)
    sums = te.compute(shape, lambda *index: te.sum(term(*index), axis=list(axes)), name="sums")
    made = sums
    if bias is not None:
        made = te.compute(shape, lambda *index: sums(*index) + tensors[-1](index[-1]), name="biased")
    function = te.create_prim_func([*tensors, made]).without_attr("global_symbol")  # "main", as the model's
    function = function.with_body(_fused(function.body)).with_attr("op_pattern", OPAQUE)
    name = operation.name.removeprefix("qnn.")
    return relax.call_tir(builder.add_func(function, name), relax.Tuple(list(operands)), operation.call.ty)


def _fused(statement: Any) -> Any:
    """`statement` with `x = x + a * b` as a fused multiply-add."""
    match statement:
        case tirx.SeqStmt():
            return tirx.SeqStmt([_fused(each) for each in statement.seq])
        case tirx.For():
            return tirx.For(statement.loop_var, statement.min, statement.extent, statement.kind, _fused(statement.body))
        case s_tir.SBlockRealize():
            return s_tir.SBlockRealize(statement.iter_values, statement.predicate, _fused(statement.block))
        case s_tir.SBlock():
            return s_tir.SBlock(
                statement.iter_vars,
                statement.reads,
                statement.writes,
                statement.name_hint,
                _fused(statement.body),
                statement.init,
                statement.alloc_buffers,
            )
        case tirx.BufferStore(value=tirx.Add(a=total, b=tirx.Mul(a=a, b=b))):
            return tirx.BufferStore(statement.buffer, lowered_fma(a, b, total), statement.indices)
        case _:
            return statement


def _products(tensors: Sequence[te.Tensor]) -> tuple[Sequence[tirx.IterVar], Callable[..., Scalar]]:
    lhs, rhs, *_ = tensors
    k = te.reduce_axis((0, int(lhs.shape[-1])), "k")

    def at(x: te.Tensor, batch: Sequence[Any], row: Any, column: Any) -> Scalar:
        own = batch[len(batch) - len(x.shape) + 2 :]
        places = [0 if int(dim) == 1 else index for dim, index in zip(x.shape, own, strict=False)]
        return x(*places, row, column)

    def term(*index: Any) -> Scalar:
        *batch, row, column = index
        return at(lhs, batch, row, k) * at(rhs, batch, k, column)

    return [k], term


def _terms(operation: Operation) -> Terms:
    (stride_h, stride_w), (step_h, step_w) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
    groups = operation.integer("groups")

    def of(tensors: Sequence[te.Tensor]) -> tuple[Sequence[tirx.IterVar], Callable[..., Scalar]]:
        x, weight, *_ = tensors
        filters, *extents = (int(dim) for dim in weight.shape)
        axes = [te.reduce_axis((0, extent), name) for extent, name in zip(extents, ("kh", "kw", "ic"), strict=True)]

        def term(n: Any, h: Any, w: Any, o: Any) -> Scalar:
            i, j, c = axes
            channel = o // (filters // groups) * extents[2] + c
            return x[n, h * stride_h + i * step_h, w * stride_w + j * step_w, channel] * weight[o, i, j, c]

        return axes, term

    return of
