"""Sums of float32 products by fused multiply-adds in one fixed order, so that every implementation gives the same
result. The results of runtimes that add in a different order, or in parts, differ from these only by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, s_tir, te, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.numerics.formula import OPAQUE, Scalar
from service.compiler.qnn.numerics.scaling.fused import sums_of_products
from service.compiler.qnn.numerics.sums import bfloat16
from service.compiler.qnn.numerics.sums.products import first_products, within
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.products import length_of
from service.core.models.arrays import Array

Sums = Callable[[Array, Array], Array]  # [rows, count], [count, columns] -> [rows, columns]

Add = Callable[[Scalar, Scalar, Scalar], Scalar]  # a, b, c -> a * b + c, rounded as required

_BLOCK = 1 << 22  # elements that are gathered at a time for all kernel positions


def _sums_of(operation: Operation, run: int | None = None) -> Sums:
    """`run` is as in `bfloat16.run_of`, by default that of all products."""
    if not bfloat16.is_bfloat16(operation):
        return sums_of_products
    return partial(bfloat16.sums_of_pairs, run=bfloat16.run_of(operation) if run is None else run)


class RealConv2d:
    """The formula of `qnn.real_conv2d`."""

    summary = "float32(sum(x * w) + bias), the sum from 0 on by float32 fused multiply-adds, channels innermost"

    def evaluate(self, operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """Adds row by row of the kernel, column by column, channel by channel. Computes some output rows at a time."""
        filters, *_, per_group = weight.shape
        groups = operation.integer("groups")
        (down, _), (step, _) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
        top, left, bottom, right = operation.ints("padding", 4, 0)
        padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
        padded = padded.reshape(*padded.shape[:3], groups, per_group)
        own = weight.reshape(groups, filters // groups, -1)
        n, height, width, _ = (int(dim) for dim in operation.call.ty.shape)
        reach = step * (weight.shape[1] - 1) + 1
        rows = max(1, _BLOCK // max(1, n * width * groups * own.shape[2]))
        sums, add = np.empty((groups, filters // groups, n, height, width), np.float32), _sums_of(operation)
        for first in range(0, height, rows):
            part = sums[..., first : first + rows, :]
            window = padded[:, first * down : (first + part.shape[3] - 1) * down + reach]
            taps = _taps(operation, window, weight.shape[1:3], part.shape[2:])
            for group in range(groups):
                part[group] = add(own[group], taps[group]).reshape(part.shape[1:])
        return _biased(np.moveaxis(sums.reshape(filters, n, height, width), 0, -1), bias)

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
    """The formula of `qnn.real_matmul`."""

    summary = "float32(sum(a * b) + bias), the sum from 0 on by float32 fused multiply-adds"

    def evaluate(self, operation: Operation, a: Array, b: Array, other: Array | None = None) -> Array:
        """`other` is the bias, or the number of products to add."""
        if other is not None and length_of(operation) is not None:
            (a, b), other = first_products(a, b, other), None
        return _matrices(operation, _sums_of(operation, a.shape[-1]), a, b, other)

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        a: relax.Expr,
        b: relax.Expr,
        other: relax.Expr | None = None,
    ) -> relax.Expr:
        terms = _terms_of_matrices(operation)
        if other is not None and length_of(operation) is not None:
            return lowered_sums(operation, builder, terms, [a, b], None, other)
        return lowered_sums(operation, builder, terms, [a, b], other)


class BlockMatMul:
    """The formula of `qnn.block_matmul`."""

    summary = "real_matmul of (float32(w) - z) * s"

    def evaluate(
        self, operation: Operation, x: Array, stored: Array, scales: Array, points: Array, bias: Array | None = None
    ) -> Array:
        real = operation.once("weights", lambda: self.weights(operation, stored, scales, points))
        return _matrices(operation, sums_of_products, x, real, bias)

    def weights(self, operation: Operation, stored: Array, scales: Array, points: Array) -> Array:
        """Returns the real values of the weights, `[K, N]`."""
        block = np.arange(len(stored)) // operation.integer("block_size")
        return np.asarray((stored.astype(np.float32) - points.astype(np.float32)[block]) * scales[block])

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        x: relax.Expr,
        stored: relax.Expr,
        scales: relax.Expr,
        points: relax.Expr,
        bias: relax.Expr | None = None,
    ) -> relax.Expr:
        size = operation.integer("block_size")

        def compute(stored: te.Tensor, scales: te.Tensor, points: te.Tensor) -> te.Tensor:
            def weight(k: Any, n: Any) -> Scalar:
                moved = stored[k, n].astype("float32") - points[k // size, n].astype("float32")
                return moved * scales[k // size, n]

            return te.compute(stored.shape, weight, name="weights")

        real = builder.emit(builder.call_te(compute, stored, scales, points, primfunc_name_hint="weights"))
        return lowered_sums(operation, builder, _products, [x, real], bias)


def _matrices(operation: Operation, add: Sums, a: Array, b: Array, bias: Array | None) -> Array:
    shape = tuple(int(dim) for dim in operation.call.ty.shape)
    lhs, rhs = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (a, b))
    sums = np.empty(shape, np.float32)
    for image in np.ndindex(shape[:-2]):
        sums[image] = add(lhs[image], rhs[image])
    return _biased(sums, bias)


def _taps(operation: Operation, window: Array, kernel: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Gathers the elements at each kernel position and channel: `[G, KH * KW * C / G, pixels]`.

    Args:
        window: `[N, …, …, G, C / G]`, with padding.
        kernel: `(KH, KW)`.
        shape: `(N, H, W)` of the pixels.
    """
    count, height, width = shape
    (down, right), (step_h, step_w) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
    taps = np.empty((window.shape[3], *kernel, window.shape[4], count, height, width), np.float32)
    for i, j in np.ndindex(kernel):
        rows = slice(i * step_h, i * step_h + (height - 1) * down + 1, down)
        columns = slice(j * step_w, j * step_w + (width - 1) * right + 1, right)
        taps[:, i, j] = window[:, rows, columns].transpose(3, 4, 0, 1, 2)
    return taps.reshape(len(taps), -1, count * height * width)


def _biased(sums: Array, bias: Array | None) -> Array:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(sums if bias is None else sums + bias)


# -- in tensor IR

# Takes operands. Returns the reduced axes, and a function from the index of a sum to one of its products.
Terms = Callable[[Sequence[te.Tensor]], tuple[Sequence[tirx.IterVar], Callable[..., Scalar]]]


def lowered_sums(
    operation: Operation,
    builder: relax.BlockBuilder,
    terms: Terms,
    operands: Sequence[relax.Expr],
    bias: relax.Expr | None,
    length: relax.Expr | None = None,
) -> relax.Expr:
    """Emits sums of products as a separate tensor program, in the form that `schedule` recognizes.

    Tensor expressions cannot express that a product is added without being rounded. The sum is therefore built with an
    ordinary addition, which is then replaced by a fused one.
    """
    shape = [int(dim) for dim in operation.call.ty.shape]
    name = operation.name.removeprefix("qnn.")
    added: Add = tensors.fma
    if operation.name != "qnn.block_matmul" and bfloat16.is_bfloat16(operation):
        operands = [bfloat16.lowered_rounding(builder, operand) for operand in operands]
        added = _flushed_fma
    operands = [*operands, *(each for each in (bias, length) if each is not None)]
    return sums_in(builder, name, shape, terms, operands, bias is not None, added)


def sums_in(
    builder: relax.BlockBuilder,
    name: str,
    shape: list[int],
    terms: Terms,
    operands: Sequence[relax.Expr],
    biased: bool = False,
    added: Add = tensors.fma,
) -> relax.Expr:
    """Does the same as `lowered_sums`, for a result of the given `shape`.

    Args:
        biased: true if the last operand is a bias that is added to the sums.
        added: the operation that multiplies and adds.
    """
    tensors = [
        te.placeholder([int(dim) for dim in x.ty.shape], str(x.ty.dtype), f"x{at}") for at, x in enumerate(operands)
    ]
    axes, term = terms(tensors)
    sums = te.compute(shape, lambda *index: te.sum(term(*index), axis=list(axes)), name="sums")
    made = sums
    if biased:
        made = te.compute(shape, lambda *index: sums(*index) + tensors[-1](index[-1]), name="biased")
    # the default symbol is "main", which is the name of the model's function
    function = te.create_prim_func([*tensors, made]).without_attr("global_symbol")
    function = function.with_body(_fused(function.body, added)).with_attr("op_pattern", OPAQUE)
    result = relax.TensorType(shape, "float32")
    return relax.call_tir(builder.add_func(function, name), relax.Tuple(list(operands)), result)


def _flushed_fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    return bfloat16.lowered_flush(tensors.fma(a, b, c))


def _fused(statement: Any, added: Add) -> Any:
    """Returns `statement` with `x = x + a * b` replaced by a call of `added`."""
    match statement:
        case tirx.SeqStmt():
            return tirx.SeqStmt([_fused(each, added) for each in statement.seq])
        case tirx.For():
            body = _fused(statement.body, added)
            return tirx.For(statement.loop_var, statement.min, statement.extent, statement.kind, body)
        case s_tir.SBlockRealize():
            return s_tir.SBlockRealize(statement.iter_values, statement.predicate, _fused(statement.block, added))
        case s_tir.SBlock():
            return s_tir.SBlock(
                statement.iter_vars,
                statement.reads,
                statement.writes,
                statement.name_hint,
                _fused(statement.body, added),
                statement.init,
                statement.alloc_buffers,
            )
        case tirx.BufferStore(value=tirx.Add(a=total, b=tirx.Mul(a=a, b=b))):
            return tirx.BufferStore(statement.buffer, added(a, b, total), statement.indices)
        case _:
            return statement


def _terms_of_matrices(operation: Operation) -> Terms:
    return _products if not bfloat16.is_bfloat16(operation) else _paired_products


def _products(tensors: Sequence[te.Tensor]) -> tuple[Sequence[tirx.IterVar], Callable[..., Scalar]]:
    k = te.reduce_axis((0, int(tensors[0].shape[-1])), "k")
    return [k], partial(_product, tensors, k)


def _paired_products(tensors: Sequence[te.Tensor]) -> tuple[Sequence[tirx.IterVar], Callable[..., Scalar]]:
    count = int(tensors[0].shape[-1])
    axes, k = bfloat16.pair_axes(count)
    return axes, lambda *index: _within(k, count, _product(tensors, k, *index))


def _within(k: Any, count: int, product: Scalar) -> Scalar:
    """Returns the product if `k` is less than `count`, and otherwise 0 * 0."""
    if count % bfloat16.PAIR == 0:
        return product
    zero = tirx.const(0.0, "float32")
    return tirx.Mul(*(tirx.if_then_else(k < count, factor, zero) for factor in (product.a, product.b)))


def _product(tensors: Sequence[te.Tensor], k: Any, *index: Any) -> Scalar:
    """Returns product number `k` of an element of the result."""
    lhs, rhs, *others = tensors
    *batch, row, column = index

    def at(x: te.Tensor, row: Any, column: Any) -> Scalar:
        own = batch[len(batch) - len(x.shape) + 2 :]
        positions = [0 if int(dim) == 1 else index for dim, index in zip(x.shape, own, strict=False)]
        return x(*positions, row, column)

    factors = at(lhs, row, k), at(rhs, k, column)
    if others and str(others[0].dtype) == "int32":
        factors = within(k, others[0][0], *factors)
    return tirx.Mul(*factors)


def _terms(operation: Operation) -> Terms:
    (stride_h, stride_w), (step_h, step_w) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
    groups = operation.integer("groups")

    def of(tensors: Sequence[te.Tensor]) -> tuple[Sequence[tirx.IterVar], Callable[..., Scalar]]:
        x, weight, *_ = tensors
        filters, *extents = (int(dim) for dim in weight.shape)
        if bfloat16.is_bfloat16(operation):
            axes, (i, j, c), bounded = _paired_axes(operation, extents)
        else:
            axes = [te.reduce_axis((0, extent), name) for extent, name in zip(extents, ("kh", "kw", "ic"), strict=True)]
            (i, j, c), bounded = axes, lambda product: product

        def term(n: Any, h: Any, w: Any, o: Any) -> Scalar:
            channel = o // (filters // groups) * extents[2] + c
            return bounded(x[n, h * stride_h + i * step_h, w * stride_w + j * step_w, channel] * weight[o, i, j, c])

        return axes, term

    return of


def _paired_axes(operation: Operation, extents: Sequence[int]) -> Any:
    """Returns the reduced axes; the row, column and channel of a product; and a function that replaces products beyond
    the end by 0 * 0.
    """
    height, width, channels = extents
    run = bfloat16.run_of(operation)
    pairs, k = bfloat16.pair_axes(run)
    rows = te.reduce_axis((0, height), "kh")
    bounded = partial(_within, k, run)
    if run == channels and width > 1:
        columns = te.reduce_axis((0, width), "kw")
        return [rows, columns, *pairs], (rows, columns, k), bounded
    return [rows, *pairs], (rows, k // channels, k % channels), bounded
