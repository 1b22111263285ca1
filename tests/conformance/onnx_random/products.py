"""Random models of products and convolutions of stored values."""

from __future__ import annotations

from typing import Any

import numpy as np

from service.core.models.arrays import Array
from tests.conformance.onnx_random.draws import BYTES, Draw, Drawn, strip
from tests.conformance.onnx_random.elementwise import MICROSOFT
from tests.support.onnx_operator import Constant, Operand

_SUMS = 2e-6  # float32 sums in another order than ONNX Runtime's, as a fraction of the largest value


def _weights(of: Draw, dtype: str, *shape: int) -> Array:
    return of.stored(dtype, *shape)


def _spread(of: Draw, count: int) -> tuple[int | None, float]:
    """Returns the number of scales of weights (None for one), and the largest scale."""
    return (count if of.often() else None), 0.02


def qlinear_matmul(of: Draw) -> Drawn:
    a_type, b_type = of.one([("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
    y_type = a_type
    depth, columns = of.size(1, 40), of.size(1, 20)
    batch = of.sizes(of.size(0, 2), 1, 3)
    is_constant = of.often(0.7)
    b_shape = [depth, columns] if of.often(0.6) else [*batch, depth, columns]
    count, high = _spread(of, columns) if is_constant and len(b_shape) == 2 else (None, 0.02)
    a_scale, b_scale, y_scale = of.scale(), of.scale(count, high=high), of.scale(low=0.1, high=1.0)
    a, b = of.stored(a_type, *batch, of.size(1, 9), depth), of.stored(b_type, *b_shape)
    points = [of.point(a_type, a_scale, is_optional=False), of.point(b_type, b_scale, is_optional=False)]
    y_point = of.point(y_type, y_scale, is_optional=False)
    second = Constant(b) if is_constant else b
    return Drawn("QLinearMatMul", [a, a_scale, points[0], second, b_scale, points[1], y_scale, y_point], [y_type])


def qgemm(of: Draw) -> Drawn:
    a_type, b_type = of.one([("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
    rows, depth, columns = of.size(1, 9), of.size(1, 40), of.size(1, 20)
    attributes: dict[str, Any] = {name: int(of.often(0.4)) for name in ("transA", "transB") if of.often(0.7)}
    if of.often(0.3):
        attributes["alpha"] = float(np.float32(of.rng.uniform(0.2, 2.0)))
    a_shape = [depth, rows] if attributes.get("transA") else [rows, depth]
    b_shape = [columns, depth] if attributes.get("transB") else [depth, columns]
    count, high = _spread(of, columns)
    a_scale, b_scale = of.scale(), of.scale(count, high=high)
    bias: Operand = None
    if of.often(0.7):
        shape = of.one([[columns], [1, columns], [rows, columns], [rows, 1], [1]])
        bias = of.operand(of.rng.integers(-3000, 3000, shape).astype(np.int32), 0.8)
    operands: list[Operand] = [
        *(of.stored(a_type, *a_shape), a_scale, of.point(a_type, a_scale, is_optional=False)),
        of.operand(of.stored(b_type, *b_shape), 0.8),
        *(b_scale, of.point(b_type, b_scale, is_optional=False), bias),
    ]
    if of.often(0.6):
        scale = of.scale(low=0.1, high=1.0)
        operands += [scale, of.point(a_type, scale, is_optional=False)]
        return Drawn(f"{MICROSOFT}QGemm", operands, [a_type], attributes)
    return Drawn(f"{MICROSOFT}QGemm", strip(operands), ["float32"], attributes, tolerance=1e-6)


def matmul_integer(of: Draw) -> Drawn:
    a_type, b_type = of.one(BYTES), of.one(BYTES)
    depth, columns, rows = of.size(1, 40), of.size(1, 20), of.size(1, 9)
    batch = of.sizes(of.size(0, 2), 1, 3)
    b_shape = [depth, columns] if of.often(0.6) else [*batch, depth, columns]
    a, b = of.stored(a_type, *batch, rows, depth), of.stored(b_type, *b_shape)
    point: Operand = None
    if of.often(0.7):
        shape = [columns] if of.often(0.4) and len(b_shape) == 2 else []
        point = of.operand(of.stored(b_type, *shape), 0.9)
    a_point = of.operand(of.stored(a_type), 0.7) if of.often(0.7) else None
    return Drawn("MatMulInteger", strip([a, of.operand(b, 0.7), a_point, point]), ["int32"])


def matmul_integer_to_float(of: Draw) -> Drawn:
    a_type, b_type = of.one(BYTES), of.one(BYTES)
    depth, columns, rows = of.size(1, 40), of.size(1, 20), of.size(1, 9)
    batch = of.sizes(of.size(0, 2), 1, 3)
    a, b = of.stored(a_type, *batch, rows, depth), of.stored(b_type, depth, columns)
    count, high = _spread(of, columns)
    b_scale = of.scale(count, high=high)
    points = of.operand(of.stored(a_type), 0.6) if of.often(0.7) else None, of.point(b_type, b_scale)
    bias = of.operand(of.real(columns), 0.9) if of.often() else None
    a_scale = of.operand(of.scale().data, 0.6)
    operands: list[Operand] = [a, of.operand(b, 0.9), a_scale, b_scale, *points, bias]
    return Drawn(f"{MICROSOFT}MatMulIntegerToFloat", strip(operands), ["float32"], tolerance=1e-6)


def dynamic_quantize_matmul(of: Draw) -> Drawn:
    b_type, depth, columns = of.one(BYTES), of.size(1, 40), of.size(1, 20)
    batch = of.sizes(of.size(0, 2), 1, 3)
    count, high = _spread(of, columns)
    scale = of.scale(count, high=high)
    bias = of.operand(of.real(columns), 0.9) if of.often() else None
    a, b = of.real(*batch, of.size(1, 9), depth), of.stored(b_type, depth, columns)
    operands: list[Operand] = [a, of.operand(b, 0.9), scale, of.point(b_type, scale), bias]
    return Drawn(f"{MICROSOFT}DynamicQuantizeMatMul", strip(operands), ["float32"], tolerance=1e-6)


def _windows(of: Draw, rank: int) -> tuple[list[int], list[int], dict[str, Any]]:
    """Returns the sizes of an image, a kernel that fits it, and the attributes of the windows."""
    sizes, kernel = of.sizes(rank, 4, 9), of.sizes(rank, 1, 3)
    attributes: dict[str, Any] = {}
    if of.often(0.7):
        attributes["strides"] = of.sizes(rank, 1, 3)
    if of.often(0.3) and rank < 3:
        attributes["dilations"] = of.sizes(rank, 1, 2)
    scheme = of.one(["pads", "pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if scheme == "pads":
        attributes["pads"] = of.sizes(2 * rank, 0, 2)
    elif scheme != "none":
        attributes["auto_pad"] = scheme
    if of.often():
        attributes["kernel_shape"] = kernel
    return sizes, kernel, attributes


def _filters(of: Draw, attributes: dict[str, Any]) -> tuple[int, int, int]:
    """Returns the number of channels, of channels per group and of filters."""
    groups = of.one([1, 1, 2, 3, 4])
    per_group, filters = of.one([1, 1, 2, 5]), groups * of.size(1, 3)
    if groups > 1:
        attributes["group"] = groups
    return groups * per_group, per_group, filters


def qlinear_conv(of: Draw) -> Drawn:
    x_type, w_type = of.one([("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
    rank = of.one([1, 2, 2, 2, 3])
    sizes, kernel, attributes = _windows(of, rank)
    channels, per_group, filters = _filters(of, attributes)
    domain, batch = "", of.size(1, 2)
    shape = [batch, channels, *sizes]
    if of.often(0.2):
        domain, attributes["channels_last"], shape = MICROSOFT, 1, [batch, *sizes, channels]
    count, high = _spread(of, filters)
    x_scale, w_scale, y_scale = of.scale(), of.scale(count, high=high), of.scale(low=0.1, high=1.0)
    points = [of.point(x_type, x_scale, is_optional=False), of.point(w_type, w_scale, is_optional=False)]
    if w_type == "int8" and points[1] is not None and (count is not None or of.often(0.7)):
        points[1] = Constant(np.zeros_like(points[1].data))
    bias = Constant(of.rng.integers(-3000, 3000, filters).astype(np.int32)) if of.often() else None
    operands: list[Operand] = [
        *(of.stored(x_type, *shape), x_scale, points[0]),
        *(of.operand(of.stored(w_type, filters, per_group, *kernel), 0.9), w_scale, points[1]),
        *(y_scale, of.point(x_type, y_scale, is_optional=False), bias),
    ]
    return Drawn(f"{domain}QLinearConv", strip(operands), [x_type], attributes)


def conv_integer(of: Draw) -> Drawn:
    x_type, w_type, rank = of.one(BYTES), of.one(BYTES), of.one([1, 2, 2, 3])
    sizes, kernel, attributes = _windows(of, rank)
    channels, per_group, filters = _filters(of, attributes)
    x = of.stored(x_type, of.size(1, 2), channels, *sizes)
    w = of.operand(of.stored(w_type, filters, per_group, *kernel), 0.9)
    x_point = of.operand(of.stored(x_type), 0.7) if of.often(0.7) else None
    w_point: Operand = None
    if of.often(0.6):
        w_point = Constant(of.stored(w_type, *([filters] if of.often(0.2) else [])))
    return Drawn("ConvInteger", strip([x, w, x_point, w_point]), ["int32"], attributes)


def matmul_nbits(of: Draw) -> Drawn:
    bits, size = of.one([4, 4, 8]), of.one([16, 32, 64])
    depth, columns = of.size(1, 5) * size - of.size(0, size // 2), of.size(1, 20)
    blocks = -(-depth // size)
    packed = of.stored("uint8", columns, blocks, size * bits // 8)
    scales = of.rng.uniform(0.01, 0.1, (columns, blocks)).astype(np.float32)
    point: Operand = None
    if of.often(0.4):
        point = Constant(of.stored("uint8", columns, -(-blocks * bits // 8)))
    elif of.often(0.3):
        point = Constant(of.rng.uniform(0, 1 << bits, (columns, blocks)).astype(np.float32))
    bias = Constant(of.real(columns)) if of.often(0.3) else None
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": size}
    if of.often():
        attributes["accuracy_level"] = of.one([0, 1])
    shape = [*of.sizes(of.size(0, 2), 1, 3), of.size(1, 4), depth]
    operands: list[Operand] = [of.real(*shape), Constant(packed), Constant(scales), point, None, bias]
    return Drawn(f"{MICROSOFT}MatMulNBits", strip(operands), ["float32"], attributes, tolerance=_SUMS)


def gather_block_quantized(of: Draw) -> Drawn:
    bits, size, rank = of.one([4, 8]), of.one([16, 32]), of.size(2, 3)
    gather = of.size(0, rank - 1)
    quantized = of.one([axis for axis in range(rank) if axis != gather]) if of.often(0.8) else gather
    if quantized != rank - 1:  # packed bytes are blocks of the last axis
        quantized = rank - 1
    shape = of.sizes(rank, 2, 4)
    shape[quantized] = size * of.size(1, 3)
    packed = [*shape[:-1], shape[-1] * bits // 8]
    blocks = [-(-extent // size) if axis == quantized else extent for axis, extent in enumerate(shape)]
    indices = of.rng.integers(-shape[gather], shape[gather], of.sizes(of.size(0, 2))).astype(of.one(["int32", "int64"]))
    scales = of.rng.uniform(0.01, 0.1, blocks).astype(np.float32)
    point: Operand = None
    if of.often():
        point = Constant(of.stored("uint8", *blocks[:-1], -(-blocks[-1] * bits // 8)))
    attributes = {"bits": bits, "block_size": size, "gather_axis": gather, "quantize_axis": quantized}
    operands: list[Operand] = [Constant(of.stored("uint8", *packed)), indices, Constant(scales), point]
    return Drawn(f"{MICROSOFT}GatherBlockQuantized", strip(operands), ["float32"], attributes)


PRODUCTS = {
    "QLinearMatMul": qlinear_matmul,
    "QGemm": qgemm,
    "MatMulInteger": matmul_integer,
    "MatMulIntegerToFloat": matmul_integer_to_float,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "QLinearConv": qlinear_conv,
    "ConvInteger": conv_integer,
    "MatMulNBits": matmul_nbits,
    "GatherBlockQuantized": gather_block_quantized,
}
