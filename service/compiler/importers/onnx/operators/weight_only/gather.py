"""GatherBlockQuantized (com.microsoft): reads rows of a table whose elements are quantized in blocks."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.indexing import indices_of
from service.compiler.importers.onnx.operators.real import Convert
from service.compiler.importers.onnx.operators.weight_only.packed import BITS, unpacked
from service.compiler.importers.real import Real
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.lookup import Table, looked_up
from service.core.models.arrays import Array

_LEAST_BLOCK = 16
_DEFAULT_BLOCK = 128


def gather_block_quantized(node: Node) -> Value:
    """Inputs: data, indices, scales, zero_points. Returns (data - zero_point) * scale at the indices of one axis.

    The data are int4 or uint4, or values of `bits` bits that are packed along the last axis of uint8. Without zero
    points, those of int4 and uint4 are 0, and those of packed values are the middle of their range. The rows of
    indices beyond both ends are zeros (contrib_ops/cpu/quantization/gather_block_quantized.cc).
    """
    data, storage = node.data(0), node.storage(0)
    rank, size = data.ndim, node.attribute("block_size", _DEFAULT_BLOCK)
    node.require(rank > 0, "has a scalar as its data", node.name(0))
    node.require(
        storage in ("int4", "uint4", "uint8"), f"has data of {storage}, not int4, uint4 or uint8", node.name(0)
    )
    axis = node.axis(node.attribute("gather_axis", 0), rank)
    along = node.axis(node.attribute("quantize_axis", 1), rank)
    bits = node.attribute("bits", 4)
    is_packed = storage == "uint8"
    node.require(bits in (BITS if is_packed else (4,)), f"has {bits} bits of {storage}")
    node.require(size >= _LEAST_BLOCK and size & (size - 1) == 0, f"has the invalid block_size {size}")
    middle = 0
    if is_packed:
        node.require(axis == 0 and along == rank - 1 and rank > 1, f"packs axis {along} and gathers along axis {axis}")
        data, middle = unpacked(data, bits), 1 << (bits - 1)
    scales = node.data(2)
    counts = tuple(-(-extent // size) if each == along else extent for each, extent in enumerate(data.shape))
    dtype = scales.dtype
    node.require_supported(dtype in (np.float32, np.float16), f"has scales of {dtype}", node.name(2))
    node.require(scales.shape == counts, f"has scales {list(scales.shape)}, not {list(counts)}", node.name(2))
    points = np.full(counts, middle, np.int32)
    if node.has(3):
        points = _points(node, counts, bits if is_packed else 8).astype(np.int32)
    sizes = tuple(size if each == along else 1 for each in range(rank))
    table = Table(data, scales.astype(np.float32), points, sizes)
    real = Real(node.emit, node.expr(1))
    wanted = indices_of(node, node.expr(1), node.known_value(1), [data.shape[axis]])
    call = looked_up(real, table, wanted, axis)
    if node.known_value(1) is None:
        call = _zeros_beyond(real, real(call), axis, data.shape[axis])
    return node.emit(call if dtype == np.float32 else relax.op.astype(real(call), dtype.name))


def _zeros_beyond(real: Real, rows: relax.Expr, axis: int, size: int) -> relax.Call:
    """Returns `rows` with zeros for indices beyond both ends of the table. The indices are the operand of `real`."""
    indices, dtype = real.x, str(real.x.ty.dtype)
    bounds = [relax.const(np.array(bound, dtype), dtype) for bound in (-size, size)]
    above, below = relax.op.greater_equal(indices, bounds[0]), relax.op.less(indices, bounds[1])
    inside = real(relax.op.logical_and(real(above), real(below)))
    behind = len(shape_of(rows)) - axis - len(shape_of(indices))
    return real.call(relax.op.where, real(relax.op.reshape(inside, (*shape_of(indices), *(1,) * behind))), rows, 0.0)


def _points(node: Node, counts: tuple[int, ...], bits: int) -> Array:
    """Returns the zero points, one for each block. They are packed like the data."""
    given = node.data(3)
    node.require(node.storage(3) == node.storage(0), f"has zero points of {node.storage(3)}", node.name(3))
    shape = (*counts[:-1], -(-counts[-1] * bits // 8))
    node.require(given.shape == shape, f"has zero points {list(given.shape)}, not {list(shape)}", node.name(3))
    return given if bits == 8 else unpacked(given, bits)[..., : counts[-1]]


GATHER: dict[str, tuple[Convert, tuple[int, int]]] = {
    "com.microsoft.GatherBlockQuantized": (gather_block_quantized, (3, 4)),
}
