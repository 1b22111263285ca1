"""Sums of float32 values in float32, each in one fixed order.

The orders are those of ONNX Runtime's sums (`core/providers/cpu/reduction`). ONNX Runtime chooses one by the position
of the summed axes (`OptimizeShapeForFastReduce` in reduction_ops.cc). The order `lanes` is for rows inside another
operator (softmax, normalization). `lanes` is the order of MLAS's softmax on AVX-512
(`MlasComputeSumExpF32KernelAvx512F`), and is used on every machine.

Compiled code cannot contract a product with a sum here, because every term is stored before it is added.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.formula import OPAQUE, Scalar
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.real import FOLDS, FOURS, LANES, PACKETS, PARTIAL_SUMS, SEQUENTIAL, STRIPS, reduced_axes
from service.core.models.arrays import Array

_LANES = 4  # floats in a packet: SSE's, for which ONNX Runtime compiles Eigen
_PAIR = 2 * _LANES  # two packets are added up at a time


class RealSum:
    """The formula of `qnn.real_sum`."""

    summary = "float32 sums, in ONNX Runtime's order or in 16 partial sums"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        axes = reduced_axes(operation)
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        count = math.prod(x.shape[axis] for axis in axes)
        terms = x.transpose(*axes, *kept).reshape(count, -1)
        with np.errstate(all="ignore"):  # real values may be infinite
            sums = self._sums(operation, terms)
        return sums.reshape(_shape(operation))

    def _sums(self, operation: Operation, terms: Array) -> Array:
        order = str(operation.attr("order"))
        if order == PACKETS:
            return _in_packets(terms, operation.integer("rows"))
        if order == SEQUENTIAL:
            return _added(terms, np.zeros(terms.shape[1], np.float32))
        if order == STRIPS:
            return _in_strips(terms)
        return _in_fours(terms) if order == FOURS else in_lanes(terms)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        lowered = {
            SEQUENTIAL: _lowered,
            FOURS: _lowered_fours,
            STRIPS: _lowered_strips,
            PACKETS: _lowered_packets,
            LANES: _lowered_lanes,
        }
        return lowered[str(operation.attr("order"))](operation, builder, x)


def _added(terms: Array, total: Array) -> Array:
    """Adds terms one after the other, along the first axis."""
    for term in terms:
        total = total + term
    return total


def _in_fours(terms: Array) -> Array:
    """Multiplies a row vector of ones by a matrix (`MlasSgemmKernelM1Avx`): four rows at a time, then two, then one."""
    total: Array = np.zeros(terms.shape[1], np.float32)
    for first, size in _fours(len(terms)):
        total = total + _added(terms[first + 1 : first + size], terms[first])
    return total


def _fours(count: int) -> list[tuple[int, int]]:
    """Returns the first index and the size of each group."""
    whole, groups = count // 4 * 4, [(first, 4) for first in range(0, count // 4 * 4, 4)]
    if count - whole >= 2:
        groups.append((whole, 2))
    return groups + ([(count - 1, 1)] if count % 2 else [])


def in_lanes(terms: Array) -> Array:
    """Adds term i to partial sum i modulo `PARTIAL_SUMS`, and then adds the partial sums in pairs.

    Returns `[1, sums]`, in the dtype of `terms`, which is `[count, sums]`.
    """
    sums = np.zeros((PARTIAL_SUMS, terms.shape[1]), terms.dtype)
    for first in range(0, len(terms), PARTIAL_SUMS):
        part = terms[first : first + PARTIAL_SUMS]
        sums[: len(part)] += part
    for distance in FOLDS:
        # computes each sum twice, with its operands in either order
        sums = sums + sums[np.arange(PARTIAL_SUMS) ^ distance]
    return sums[:1]


def _in_packets(terms: Array, rows: int) -> Array:
    """Eigen's sum of a row (Eigen/src/Core/Redux.h, linear vectorized traversal): adds two packets at a time from the
    first aligned element on, then the elements before the first packet, then the elements after the last one.

    Args:
        rows: the number of rows that are contiguous in memory. The first starts at an aligned address.
    """
    count = len(terms)
    totals = np.zeros(terms.shape[1], np.float32)
    starts = np.array([_start(row % rows, count) for row in range(terms.shape[1])])
    for start in set(starts.tolist()):
        own = terms[:, starts == start]
        whole, pairs = (count - start) // _LANES * _LANES, (count - start) // _PAIR * _PAIR
        packets = own[start : start + whole].reshape(-1, _LANES, own.shape[1])
        none = np.zeros(packets.shape[1:], np.float32)
        both = [_added(packets[side : pairs // _LANES : 2], none) for side in (0, 1)]
        lanes = _added(packets[pairs // _LANES :], both[0] + both[1])
        total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
        totals[starts == start] = _added(own[start + whole :], _added(own[:start], total))
    return totals


def _start(row: int, count: int) -> int:
    """Returns the number of elements of a row before the first one whose address is a multiple of a packet's size."""
    return min(-row * count % _LANES, count)


# -- in tensor IR


def _in_strips(terms: Array) -> Array:
    """Sums a whole image (`MlasPoolGlobalKernel` in mlas/lib/pooling.cpp): vectors of four are added up and folded by
    `MlasReduceAddFloat32x4`, and the elements that do not fill a vector are added one by one.
    """
    whole = len(terms) // _LANES * _LANES
    if not whole:
        return _added(terms, np.zeros(terms.shape[1], np.float32))
    lanes = _added(terms[:whole].reshape(-1, _LANES, terms.shape[1]), np.zeros((_LANES, terms.shape[1]), np.float32))
    return _added(terms[whole:], (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))


def _lowered_strips(operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    count = _count(operation, x)
    whole = count // _LANES * _LANES

    def lanes(x: te.Tensor) -> te.Tensor:
        """Computes the partial sums, `[…, 4]`."""
        at, step = _elements(operation, x), te.reduce_axis((0, whole // _LANES), "step")

        def total(*index: Any) -> Scalar:
            *position, lane = index
            return te.sum(at(position, step * _LANES + lane), axis=step)

        return te.compute([*_shape(operation), _LANES], total, name="lanes")

    def joined(x: te.Tensor, *lanes: te.Tensor) -> te.Tensor:
        at = _elements(operation, x)

        def total(*index: Any) -> Scalar:
            folded = [(own(*index, 0) + own(*index, 2)) + (own(*index, 1) + own(*index, 3)) for own in lanes]
            return _chain([*folded, *(at(index, position) for position in range(whole, count))])

        return te.compute(_shape(operation), total, name="joined")

    strips = [emitted(builder, "lanes", lanes, x)] if whole else []
    return emitted(builder, "joined", joined, x, *strips)


def _lowered(operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    axes = reduced_axes(operation)

    def compute(x: te.Tensor) -> te.Tensor:
        positions = {axis: te.reduce_axis((0, int(x.shape[axis])), f"r{axis}") for axis in axes}

        def total(*index: Any) -> Scalar:
            return te.sum(x(*(positions.get(axis, i) for axis, i in enumerate(index))), axis=list(positions.values()))

        return te.compute(_shape(operation), total, name="real_sum")

    return emitted(builder, "real_sum", compute, x)


def _lowered_fours(operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    groups = _fours(_count(operation, x))
    whole = sum(size == 4 for _, size in groups)
    rest = groups[whole:]

    def compute_whole(x: te.Tensor) -> te.Tensor:
        at, group = _elements(operation, x), te.reduce_axis((0, whole), "group")

        def total(*index: Any) -> Scalar:
            return te.sum(_chain([at(index, 4 * group + position) for position in range(4)]), axis=group)

        return te.compute(_shape(operation), total, name="fours")

    def compute_rest(x: te.Tensor, *totals: te.Tensor) -> te.Tensor:
        at = _elements(operation, x)

        def total(*index: Any) -> Scalar:
            sums = (_chain([at(index, first + position) for position in range(size)]) for first, size in rest)
            return _chain([*(each(*index) for each in totals), *sums])

        return te.compute(_shape(operation), total, name="rest")

    totals = [emitted(builder, "fours", compute_whole, x)] if whole else []
    return emitted(builder, "rest", compute_rest, x, *totals) if rest else totals[0]


def _lowered_lanes(operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return lowered_lanes(operation, builder, x, "float32", lambda total: total)


def lowered_lanes(
    operation: Operation,
    builder: relax.BlockBuilder,
    x: relax.Expr,
    dtype: str,
    of_sum: Callable[[Scalar], Scalar],
) -> relax.Expr:
    """Emits `of_sum` for the sum of each row of `x`. The sum is computed in `dtype`, in the order of `in_lanes`."""
    count = int(x.ty.shape[-1])

    def lanes(x: te.Tensor) -> te.Tensor:
        """Computes the partial sums, `[…, 16]`. Positions beyond the end of a row add zero."""
        step = te.reduce_axis((0, -(-count // PARTIAL_SUMS)), "step")

        def total(*index: Any) -> Scalar:
            *row, lane = index
            position = step * PARTIAL_SUMS + lane
            return te.sum(_if(position < count, x(*row, position)).astype(dtype), axis=step)

        return te.compute([*x.shape[:-1], PARTIAL_SUMS], total, name="lanes")

    def folded(lanes: te.Tensor) -> te.Tensor:
        def total(*index: Any) -> Scalar:
            sums = {lane: lanes(*index[:-1], lane) for lane in range(PARTIAL_SUMS)}
            for distance in FOLDS:
                sums = {lane: sums[lane] + sums[lane ^ distance] for lane in sums if not lane & distance}
            return of_sum(sums[0])

        return te.compute(_shape(operation), total, name="folded")

    return emitted(builder, "folded", folded, emitted(builder, "lanes", lanes, x))


def _lowered_packets(operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    count, rows = _count(operation, x), operation.integer("rows")
    axes = reduced_axes(operation)
    kept = [axis for axis in range(len(x.ty.shape)) if axis not in axes]
    extents = [int(dim) for dim in x.ty.shape]

    def start(index: Sequence[Any]) -> Any:
        """Does the same as `_start`, in tensor IR."""
        row: Any = tirx.const(0, "int32")
        for axis in kept:
            row = row * extents[axis] + index[axis]
        offset = tirx.indexmod(tirx.indexmod(row, rows) * (count % _LANES), _LANES)
        return tirx.min(tirx.indexmod(_LANES - offset, _LANES), count)

    def lanes(x: te.Tensor) -> te.Tensor:
        """Computes the sum of each lane of the two packets, `[…, 8]`."""
        at, step = _elements(operation, x), te.reduce_axis((0, max(1, count // _PAIR)), "step")

        def total(*index: Any) -> Scalar:
            *position, lane = index
            first = start(position)
            pairs = tirx.indexdiv(count - first, _PAIR)
            return te.sum(_if(step < pairs, at(position, first + step * _PAIR + lane)), axis=step)

        return te.compute([*_shape(operation), _PAIR], total, name="lanes")

    def joined(x: te.Tensor, lanes: te.Tensor) -> te.Tensor:
        at = _elements(operation, x)

        def total(*index: Any) -> Scalar:
            first = start(index)
            whole, pairs = (tirx.indexdiv(count - first, size) * size for size in (_LANES, _PAIR))

            def lane(position: int) -> Scalar:
                left = _if(pairs < whole, at(index, first + pairs + position))
                return lanes(*index, position) + lanes(*index, position + _LANES) + left

            before = [_if(position < first, at(index, position)) for position in range(_LANES - 1)]
            behind = [first + whole + position for position in range(_LANES - 1)]
            after = [_if(position < count, at(index, position)) for position in behind]
            return _chain([(lane(0) + lane(2)) + (lane(1) + lane(3)), *before, *after])

        return te.compute(_shape(operation), total, name="joined")

    return emitted(builder, "joined", joined, x, emitted(builder, "lanes", lanes, x))


def _if(condition: Any, value: Scalar) -> Scalar:
    """Returns `value` if the condition holds, and otherwise 0, which changes no sum. `value` is evaluated only if the
    condition holds.
    """
    return tirx.if_then_else(condition, value, tirx.const(0, "float32"))


def _chain(terms: Sequence[Scalar]) -> Scalar:
    return functools.reduce(lambda total, term: total + term, terms)


def _elements(operation: Operation, x: te.Tensor) -> Callable[[Sequence[Any], Any], Scalar]:
    """Returns a function that takes the index of a sum and the position of one of its terms, and returns that element
    of `x`.
    """
    axes = reduced_axes(operation)

    def at(index: Sequence[Any], element: Any) -> Scalar:
        full = list(index)
        for axis in reversed(axes):
            extent = int(x.shape[axis])
            full[axis] = element if axis == axes[0] else tirx.indexmod(element, extent)
            element = tirx.indexdiv(element, extent)
        return x(*full)

    return at


def emitted(builder: relax.BlockBuilder, name: str, compute: Callable[..., te.Tensor], *args: relax.Expr) -> relax.Var:
    """Emits a separate tensor program, which is never fused with others."""
    return builder.emit(builder.call_te(compute, *args, primfunc_name_hint=name, primfunc_attrs={"op_pattern": OPAQUE}))


def _count(operation: Operation, x: relax.Expr) -> int:
    return math.prod(int(x.ty.shape[axis]) for axis in reduced_axes(operation))


def _shape(operation: Operation) -> list[int]:
    return [int(dim) for dim in operation.call.ty.shape]
