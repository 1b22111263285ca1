"""MatMulNBits (com.microsoft): products of real values by weights of 2, 4 or 8 bits, quantized in blocks.

With accuracy level 4, ONNX Runtime quantizes the real values to int8 first, in the same blocks
(`QuantizeARowComputeBlkSum_CompInt8` in mlas/lib). Here the quantized values are converted back to float32 before the
product, so the results differ from ONNX Runtime's by the rounding of sums only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.real import Convert
from service.compiler.importers.onnx.operators.weight_only.packed import BITS, unpacked
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_INT8_LEVEL = 4  # the accuracy level that allows int8 activations
# bits of the weights -> the block sizes for which ONNX Runtime 1.31.1 has such a kernel on x86-64
INT8_BLOCKS = {2: (32, 64, 128), 4: (16, 32, 64, 128, 256), 8: (16, 32, 64, 128, 256)}
_INT8_MOST = 127.0
_REORDERED_BITS = 4  # the bits of weights for which ONNX Runtime supports g_idx and real zero points


@dataclass(frozen=True)
class Weights:
    """Weights in blocks along the rows: real = (stored - point) * scale.

    Attributes:
        stored: `[K, N]` uint8.
        scales, points: `[blocks, N]` float32 of any sign, and real or whole zero points.
        size: the number of rows of a block. The last block may have fewer.
    """

    stored: Array
    scales: Array
    points: Array
    size: int
    bits: int

    def is_whole(self) -> bool:
        """Returns true if the zero points are integers of `bits` bits."""
        points = self.points
        return bool(((points == np.rint(points)) & (points >= 0) & (points < 1 << self.bits)).all())

    def real(self, blocks: Array) -> Array:
        """Returns the real weights `[K, N]`. `blocks` contains the index of the block of each row."""
        return (self.stored.astype(np.float32) - self.points.astype(np.float32)[blocks]) * self.scales[blocks]


def matmul_nbits(node: Node) -> relax.Var:
    """Inputs: A, B, scales, zero_points, g_idx, bias. Multiplies rows `[…, K]` by weights `[N, K]`.

    The weights are packed in bytes, `[N, K / block, block * bits / 8]`. Zero points are packed in the same way, or have
    the type of A. For each column of A, g_idx contains the index of its block; without it, blocks are contiguous. With
    g_idx, ONNX Runtime 1.31.1 ignores packed zero points (measured).
    """
    dtype = node.dtype(0)
    node.require_supported(dtype in ("float32", "float16"), f"works on {dtype}, not float32", node.name(0))
    bits, size = node.attribute("bits", 4), node.attribute("block_size", 0)
    depth, units = node.attribute("K", 0), node.attribute("N", 0)
    node.require_supported(bits in BITS, f"has weights of {bits} bits; 2, 4 and 8 bits can be compiled")
    node.require(size > 0 and depth > 0 and units > 0, f"has the invalid block_size {size}, N {units} or K {depth}")
    shape = node.shape(0)
    node.require(bool(shape) and shape[-1] == depth, f"multiplies rows of {list(shape)} by weights of {depth} rows")
    weights = _weights(node, bits, size, depth, units)
    bias = None
    if node.has(5):
        given = node.data(5)
        node.require(given.shape == (units,), f"has a bias {list(given.shape)} for {units} columns", node.name(5))
        bias = node.literal(given.astype(np.float32))
    real = Real(node.emit, node.expr(0))
    x = real.x if dtype == "float32" else real(relax.op.astype(real.x, "float32"))
    x = x if len(shape) > 1 else real(relax.op.reshape(x, (1, depth)))
    is_plain = not node.has(4) and (not node.has(3) or node.dtype(3) == "uint8")
    if not is_plain and bits != _REORDERED_BITS:
        node.unsupported(f"has weights of {bits} bits with g_idx or real zero points; ONNX Runtime computes them for 4")
    if is_plain and node.attribute("accuracy_level", 0) == _INT8_LEVEL and size in INT8_BLOCKS[bits]:
        x = quantized_in_blocks(real, x, size)
    call = _product(node, real, x, weights, bias)
    if len(shape) == 1:
        call = relax.op.reshape(real(call), (units,))
    return node.emit(call if dtype == "float32" else relax.op.astype(real(call), dtype))


def _product(node: Node, real: Real, x: relax.Expr, weights: Weights, bias: relax.Expr | None) -> relax.Call:
    depth = len(weights.stored)
    blocks = np.arange(depth) // weights.size
    if node.has(4):
        groups = _groups(node, depth, len(weights.scales))
        order = np.argsort(groups, kind="stable")
        if not (groups[order] == blocks).all() or not weights.is_whole():
            return ops.real_matmul(x, node.literal(weights.real(groups)), bias)
        x = real(relax.op.take(x, node.literal(order.astype(np.int64)), len(shape_of(x)) - 1, mode="clip"))
        weights = Weights(weights.stored[order], weights.scales, weights.points, weights.size, weights.bits)
    if not weights.is_whole():
        return ops.real_matmul(x, node.literal(weights.real(blocks)), bias)
    operands = (weights.stored, weights.scales, weights.points.astype(np.uint8))
    stored, scales, points = (node.literal(each) for each in operands)
    return ops.block_matmul(x, stored, scales, points, bias, block_size=min(weights.size, depth), bits=weights.bits)


def quantized_in_blocks(real: Real, x: relax.Expr, size: int) -> relax.Expr:
    """Quantizes rows to int8 and converts them back to float32. Each block of `size` neighbors along the last axis has
    the scale max(|x|) / 127; a block of zeros stays zero.
    """
    *batch, depth = shape_of(x)
    count = -(-depth // size)
    rest = count * size - depth
    whole = x if not rest else real(relax.op.nn.pad(x, [0, 0] * len(batch) + [0, rest]))
    blocks = real(relax.op.reshape(whole, (*batch, count, size)))
    largest = real(relax.op.max(real(relax.op.abs(blocks)), axis=[len(batch) + 1], keepdims=True))
    is_zero = real(relax.op.equal(largest, relax.const(np.float32(0))))
    divisor = real.apply(relax.op.where, is_zero, 1.0, largest)
    factor = real.apply(relax.op.where, is_zero, 0.0, real.apply(relax.op.divide, _INT8_MOST, divisor))
    stored = real(relax.op.round(real.apply(relax.op.multiply, blocks, factor)))
    scale = real.apply(relax.op.divide, largest, _INT8_MOST)
    flat = real(relax.op.reshape(real.apply(relax.op.multiply, stored, scale), (*batch, count * size)))
    return flat if not rest else real(relax.op.strided_slice(flat, [len(batch)], [0], [depth], [1]))


def _weights(node: Node, bits: int, size: int, depth: int, units: int) -> Weights:
    count = -(-depth // size)
    stored = _unpacked(node, 1, bits, units * count * size).reshape(units, count * size)[:, :depth]
    scales = node.data(2)
    node.require_supported(scales.dtype in (np.float32, np.float16), f"has scales of {scales.dtype}", node.name(2))
    node.require(scales.size == units * count, f"has {scales.size} scales, not {units * count}", node.name(2))
    points: Array = np.full((units, count), 1 << (bits - 1), np.uint8)
    is_packed = node.has(3) and node.dtype(3) == "uint8"
    if is_packed and not node.has(4):
        per_row = -(-count * bits // 8) * 8 // bits
        points = _unpacked(node, 3, bits, units * per_row).reshape(units, per_row)[:, :count]
    elif node.has(3) and not is_packed:
        given = node.data(3)
        node.require(given.dtype.kind == "f", f"has zero points of {given.dtype}", node.name(3))
        node.require(given.size == units * count, f"has {given.size} zero points, not {units * count}", node.name(3))
        points = given.reshape(units, count)
    factors = scales.astype(np.float32).reshape(units, count)
    stored, factors, points = (np.ascontiguousarray(each.T) for each in (stored, factors, points))
    return Weights(stored, factors, points, size, bits)


def _groups(node: Node, depth: int, count: int) -> Array:
    groups = node.data(4)
    node.require(groups.dtype.kind == "i" and groups.size >= depth, f"has {groups.size} indices in g_idx, not {depth}")
    rows = groups.reshape(-1)[:depth]
    node.require(bool(((rows >= 0) & (rows < count)).all()), "has an index in g_idx beyond its blocks", node.name(4))
    return rows


def _unpacked(node: Node, index: int, bits: int, count: int) -> Array:
    data = node.data(index)
    node.require_supported(data.dtype == np.uint8, f"has packed values of {data.dtype}, not uint8", node.name(index))
    values = unpacked(data.reshape(-1), bits)
    node.require(values.size == count, f"has {values.size} packed values, not {count}", node.name(index))
    return values


PRODUCT: dict[str, tuple[Convert, tuple[int, int]]] = {
    "com.microsoft.MatMulNBits": (matmul_nbits, (3, 6)),
}
