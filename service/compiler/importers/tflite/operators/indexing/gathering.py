"""GATHER, GATHER_ND, EMBEDDING_LOOKUP and ONE_HOT."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.selection import sliced
from service.compiler.qnn.graph import shape_of

_LARGEST_DEPTH = 1 << 20  # the longest one-hot row


def gather(node: Node) -> relax.Expr:
    """Converts GATHER. Data and indices share the first `batch_dims` axes (`Gather` in reference/gather.h)."""
    same_type_of_data(node)
    shape, indices = node.input(0).shape, node.input(1).shape
    node.require(bool(shape), "has a scalar input", node.input(0))
    axis = node.axis(node.int_option("axis"), len(shape))
    shared = node.int_option("batch_dims")
    shared += len(indices) if shared < 0 else 0
    fits = 0 <= shared <= min(len(indices), axis) and shape[:shared] == indices[:shared]
    node.require(fits, f"shares {shared} axes of {list(shape)} and {list(indices)}")
    if not shared:
        return node.emit(relax.op.take(node.expr(0), indices_of(node, 1), axis=axis, mode="clip"))
    batches, before, after = shape[:shared], shape[shared:axis], shape[axis + 1 :]
    count = math.prod(batches)
    # [batches, before, size, after] -> [batches * size, before, after]
    cube = node.emit(relax.op.reshape(node.expr(0), (count, math.prod(before), shape[axis], math.prod(after))), "cube")
    turned = node.emit(relax.op.permute_dims(cube, [0, 2, 1, 3]), "turned")
    flat = (count * shape[axis], math.prod(before), math.prod(after))
    rows = node.emit(relax.op.reshape(turned, flat), "rows")
    wanted = math.prod(indices[shared:])
    places = node.emit(relax.op.reshape(indices_of(node, 1), (count, wanted)), "places")
    starts = np.arange(count, dtype=np.int32)[:, np.newaxis] * shape[axis]
    within = clamped(node, places, shape[axis], "within")
    at = node.emit(relax.op.add(within, node.literal(starts.astype(np.int32))), "at")
    taken = node.emit(relax.op.take(rows, at, axis=0, mode="clip"), "taken")
    moved = node.emit(relax.op.permute_dims(taken, [0, 2, 1, 3]), "moved")
    return node.emit(relax.op.reshape(moved, (*batches, *before, *indices[shared:], *after)))


def gather_nd(node: Node) -> relax.Expr:
    """Converts GATHER_ND: each row of the indices selects an element or a part of the data (reference/reference_ops.h,
    GatherNd).
    """
    same_type_of_data(node)
    shape, indices = node.input(0).shape, node.input(1).shape
    node.require(
        bool(indices) and 1 <= indices[-1] <= len(shape),
        f"cannot gather from shape {list(shape)} with indices of shape {list(indices)}",
    )
    depth = indices[-1]
    leading, rest = shape[:depth], shape[depth:]
    rows = node.emit(relax.op.reshape(node.expr(0), [math.prod(leading), *rest]), "rows")
    return node.emit(relax.op.take(rows, row_places(node, 1, leading), axis=0, mode="clip"))


def row_places(node: Node, index: int, leading: tuple[int, ...]) -> relax.Expr:
    """Returns the position of each row of indices (input `index`) in data whose first axes are `leading`, flattened."""
    position: relax.Expr | None = None
    for axis, size in enumerate(leading):
        column = _column(node, index, axis, size)
        if position is None:
            position = column
            continue
        scaled = node.emit(relax.op.multiply(position, relax.const(np.array(size, np.int32))), f"scaled_{axis}")
        position = node.emit(relax.op.add(scaled, column), f"place_{axis}")
    assert position is not None
    return position


def _column(node: Node, index: int, axis: int, size: int) -> relax.Expr:
    """Returns element `axis` of each row of the indices, clamped to the size of the data."""
    shape = node.input(index).shape
    begin, end = [0] * (len(shape) - 1) + [axis], [*shape[:-1], axis + 1]
    cut = sliced(node, indices_of(node, index), begin, end, f"cut_{axis}")
    column = node.emit(relax.op.reshape(cut, shape[:-1]), f"column_{axis}")
    return clamped(node, column, size, f"within_{axis}")


def clamped(node: Node, x: relax.Expr, size: int, part: str) -> relax.Expr:
    """Returns int32 indices, clamped to 0 … size - 1."""
    above = node.emit(relax.op.maximum(x, relax.const(np.array(0, np.int32))), f"above_{part}")
    return node.emit(relax.op.minimum(above, relax.const(np.array(size - 1, np.int32))), part)


def indices_of(node: Node, index: int) -> relax.Expr:
    """Returns the input `index`, which contains indices, as int32."""
    tensor, types = node.input(index), ("int16", "int32", "int64")
    node.require(tensor.dtype in types, f"has indices of {tensor.dtype}, not int16, int32 or int64", tensor)
    x = node.expr(index)
    return x if tensor.dtype == "int32" else node.emit(relax.op.astype(x, "int32"), "indices")


def same_type_of_data(node: Node, index: int = 0) -> None:
    """Requires that the output has the quantization of the input `index`, because elements are copied."""
    if node.is_quantized and node.in_type(index) != node.out_type():
        node.unsupported(f"reads {node.in_type(index)}, but writes {node.out_type()}")


def embedding_lookup(node: Node) -> relax.Expr:
    """Converts EMBEDDING_LOOKUP, which reads rows of a table. A table of 8-bit weights gives float32 rows (`EvalHybrid`
    in tflite/kernels/embedding_lookup.cc).
    """
    table, ids = node.input(1), node.input(0)
    node.require(len(ids.shape) == 1, f"has ids of shape {list(ids.shape)}, not one dimension", ids)
    node.require(len(table.shape) >= 2, f"has a table of shape {list(table.shape)}", table)
    rows = node.emit(relax.op.take(node.expr(1), indices_of(node, 0), axis=0, mode="clip"), "rows")
    if table.dtype == node.output.dtype:
        same_type_of_data(node, 1)
        return rows
    quantization = table.quantization
    if table.dtype not in ("int8", "uint8") or node.output.dtype != "float32" or quantization is None:
        node.unsupported(f"reads {table.dtype}, but writes {node.output.dtype}", table)
    node.check_quantization(table, quantization)
    if any(quantization.zero_points) or (quantization.per_axis and quantization.axis):
        node.unsupported("reads a table whose zero points are not 0, or whose scales are not by row", table)
    real = node.emit(relax.op.astype(rows, "float32"), "real")
    scales: relax.Expr = node.literal(np.array(quantization.scales, np.float32))
    if quantization.per_axis:
        by_row = node.emit(relax.op.take(scales, indices_of(node, 0), axis=0, mode="clip"), "scales")
        scales = node.emit(relax.op.reshape(by_row, (*ids.shape, *[1] * (len(table.shape) - 1))), "by_row")
    return node.emit(relax.op.multiply(real, scales))


def one_hot(node: Node) -> relax.Expr:
    """Converts ONE_HOT. The result has an additional axis that contains `on` (input 2) at the index, and `off`
    elsewhere.
    """
    shape, depth = list(node.input(0).shape), node.scalar(1)
    if not 0 < depth <= _LARGEST_DEPTH:
        node.unsupported(f"has a depth of {depth}; only 1 to {_LARGEST_DEPTH} can be compiled", node.input(1))
    axis = node.axis(node.int_option("axis"), len(shape) + 1)
    dtype = node.input(0).dtype
    node.require(dtype in ("int32", "int64"), f"has indices of {dtype}, not int32 or int64", node.input(0))
    indices = node.emit(relax.op.reshape(node.expr(0), [*shape[:axis], 1, *shape[axis:]]), "indices")
    steps = np.arange(depth, dtype=dtype).reshape(-1, *[1] * (len(shape) - axis))
    hit = node.emit(relax.op.equal(indices, node.literal(steps)), "hit")
    on, off = (_scalar(node, index) for index in (2, 3))
    return node.emit(relax.op.where(hit, on, off))


def _scalar(node: Node, index: int) -> relax.Expr:
    value = node.expr(index)
    node.require(math.prod(shape_of(value)) == 1, "has an on or off value that is not a scalar", node.input(index))
    return node.emit(relax.op.reshape(value, ()), f"value_{index}")
