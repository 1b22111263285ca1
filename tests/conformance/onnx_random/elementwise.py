"""Random models of element-wise operators, poolings and conversions of stored values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.onnx_random.draws import BYTES, Draw, Drawn, strip
from tests.support.onnx_operator import Constant, Operand

MICROSOFT = "com.microsoft."


def binary(op_type: str) -> Callable[[Draw], Drawn]:
    """Returns the function that draws models of QLinearAdd or QLinearMul."""

    def draw(of: Draw) -> Drawn:
        dtype, shape = of.one(BYTES), of.sizes(of.size(1, 4), 1, 40)
        shapes = [shape, of.broadcast(shape)]
        if of.often():
            shapes.reverse()
        operands: list[Operand] = []
        constant = of.size(0, 4)
        for index, each in enumerate(shapes):
            data, scale = of.stored(dtype, *each), of.scale()
            operands += [Constant(data) if index == constant else data, scale, of.point(dtype, scale)]
        scale = of.scale(low=0.02, high=0.2)
        return Drawn(f"{MICROSOFT}{op_type}", [*operands, scale, of.point(dtype, scale)], [dtype])

    return draw


def unary(op_type: str) -> Callable[[Draw], Drawn]:
    """Returns the function that draws models of QLinearSigmoid or QLinearLeakyRelu."""

    def draw(of: Draw) -> Drawn:
        dtype, x_scale, y_scale = of.one(BYTES), of.scale(), of.scale(low=0.004)
        x = of.stored(dtype, *of.sizes(of.size(1, 4)))
        operands: list[Operand] = [x, x_scale, of.point(dtype, x_scale), y_scale, of.point(dtype, y_scale)]
        attributes: dict[str, Any] = {}
        if op_type == "QLinearLeakyRelu" and of.often(0.8):
            attributes["alpha"] = float(np.float32(of.rng.uniform(-0.5, 1.5)))
        return Drawn(f"{MICROSOFT}{op_type}", operands, [dtype], attributes)

    return draw


def softmax(of: Draw) -> Drawn:
    dtype, x_scale, y_scale = of.one(BYTES), of.scale(), of.scale(low=0.003, high=0.02)
    rank = of.size(1, 4)
    x = of.stored(dtype, *of.sizes(rank, 1, 20))
    points = of.point(dtype, x_scale), of.point(dtype, y_scale, is_optional=False)
    attributes = {"opset": of.one([1, 11, 12, 13, 18]), "axis": of.size(-rank, rank - 1)}
    if of.often(0.2):
        del attributes["axis"]
    return Drawn(f"{MICROSOFT}QLinearSoftmax", [x, x_scale, points[0], y_scale, points[1]], [dtype], attributes)


def concat(of: Draw) -> Drawn:
    dtype, rank = of.one(BYTES), of.size(1, 4)
    axis, shape = of.size(0, rank - 1), of.sizes(rank)
    scale = of.scale()
    operands: list[Operand] = [scale, of.point(dtype, scale, is_optional=False)]
    parts, constant = of.size(1, 4), of.size(0, 5)
    for index in range(parts):
        shape[axis] = of.size()
        data, each = of.stored(dtype, *shape), scale if of.often(0.2) else of.scale()
        point = operands[1] if each is scale else of.point(dtype, each, is_optional=False)
        operands += [Constant(data) if index == constant and parts > 1 else data, each, point]
    return Drawn(f"{MICROSOFT}QLinearConcat", operands, [dtype], {"axis": axis - rank if of.often(0.3) else axis})


def where(of: Draw) -> Drawn:
    dtype, shape = of.one(BYTES), of.sizes(of.size(1, 4))
    condition = of.rng.random(of.broadcast(shape)) < 0.5
    operands: list[Operand] = [of.operand(condition)]
    for _ in range(2):
        scale = of.scale()
        operands += [of.operand(of.stored(dtype, *of.broadcast(shape))), scale, of.point(dtype, scale)]
    if all(isinstance(operands[index], Constant) for index in (0, 1, 4)):
        operands[0] = condition
    scale = of.scale()
    return Drawn(f"{MICROSOFT}QLinearWhere", [*operands, scale, of.point(dtype, scale)], [dtype])


def average_pool(of: Draw) -> Drawn:
    dtype, rank = of.one(BYTES), of.size(1, 3)
    sizes, kernel = of.sizes(rank, 4, 9), of.sizes(rank, 1, 4)
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if of.often(0.7):
        attributes["strides"] = of.sizes(rank, 1, 3)
    scheme = of.one(["pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "none"])
    if scheme == "pads":
        attributes["pads"] = [of.size(0, size - 1) for size in (*kernel, *kernel)]
    elif scheme != "none":
        attributes["auto_pad"] = scheme
    for name in ("ceil_mode", "count_include_pad", "channels_last"):
        if of.often(0.3):
            attributes[name] = 1
    batch, channels = of.sizes(2, 1, 20)
    shape = [batch, *sizes, channels] if "channels_last" in attributes else [batch, channels, *sizes]
    x_scale = of.scale()
    y_scale = of.scale()
    operands: list[Operand] = [
        of.stored(dtype, *shape),
        x_scale,
        of.point(dtype, x_scale),
        y_scale,
        of.point(dtype, y_scale),
    ]
    return Drawn(f"{MICROSOFT}QLinearAveragePool", strip(operands), [dtype], attributes)


def global_average_pool(of: Draw) -> Drawn:
    dtype, rank = of.one(BYTES), of.size(1, 3)
    last = of.often(0.4)
    batch, channels = of.sizes(2, 1, 20)
    sizes = of.sizes(rank, 1, 9)
    shape = [batch, *sizes, channels] if last else [batch, channels, *sizes]
    x_scale, y_scale = of.scale(), of.scale()
    points = [of.point(dtype, each, is_optional=False) for each in (x_scale, y_scale)]
    operands: list[Operand] = [of.stored(dtype, *shape), x_scale, points[0], y_scale, points[1]]
    attributes = {"channels_last": int(last)} if last or of.often(0.3) else {}
    return Drawn(f"{MICROSOFT}QLinearGlobalAveragePool", operands, [dtype], attributes)


def quantize(of: Draw) -> Drawn:
    """Draws QuantizeLinear or DequantizeLinear: one scale, one for each index of an axis, or blocks."""
    is_quantizing, is_microsoft = of.often(), of.often(0.3)
    dtypes = ["int8", "uint8", "int16", "uint16"] + ([] if is_quantizing else ["int32"])
    dtype, rank = of.one(dtypes), of.size(1, 4)
    shape, axis = of.sizes(rank, 1, 8), of.size(0, rank - 1)
    attributes: dict[str, Any] = {}
    form = of.one(["one", "axis", "blocks"])
    if form == "blocks" and not is_microsoft:
        size = of.size(1, 4)
        attributes = {"axis": axis, "block_size": size}
        blocks = [-(-extent // size) if index == axis else extent for index, extent in enumerate(shape)]
        scale = Constant(of.rng.uniform(0.01, 0.1, blocks).astype(np.float32))
    elif form == "axis":
        attributes = {"axis": axis - rank if of.often(0.3) else axis}
        scale = of.scale(shape[axis])
    else:
        scale = of.scale()
    point = of.point(dtype, scale, is_optional=dtype == "uint8" or not is_quantizing)
    if dtype == "int32":
        point = None if of.often() else Constant(np.zeros_like(scale.data, np.int32))
    domain = MICROSOFT if is_microsoft else ""
    if form != "blocks" and of.often(0.3):  # computed at run time
        computed_point = None if point is None else point.data
        pairs: list[tuple[Operand, Operand]] = [(scale.data, point), (scale.data, computed_point)]
        given = of.one([*pairs, (scale, computed_point)])
        return _with_parameters(of, domain, dtype, shape, given, attributes, is_quantizing=is_quantizing)
    if is_quantizing:
        x = of.real(*shape) * np.float32(of.one([1, 100]))
        return Drawn(f"{domain}QuantizeLinear", strip([x, scale, point]), [dtype], attributes)
    return Drawn(f"{domain}DequantizeLinear", strip([of.stored(dtype, *shape), scale, point]), ["float32"], attributes)


def _with_parameters(
    of: Draw,
    domain: str,
    dtype: str,
    shape: list[int],
    parameters: tuple[Operand, Operand],
    attributes: dict[str, Any],
    *,
    is_quantizing: bool,
) -> Drawn:
    if is_quantizing:
        operands = strip([of.real(*shape) * np.float32(of.one([1, 100])), *parameters])
        return Drawn(f"{domain}QuantizeLinear", operands, [dtype], attributes)
    return Drawn(f"{domain}DequantizeLinear", strip([of.stored(dtype, *shape), *parameters]), ["float32"], attributes)


def dynamic_quantize(of: Draw) -> Drawn:
    return Drawn("DynamicQuantizeLinear", [of.real(*of.sizes(of.size(1, 4)))], ["uint8", "float32", "uint8"])


ELEMENTWISE = {
    "QLinearAdd": binary("QLinearAdd"),
    "QLinearMul": binary("QLinearMul"),
    "QLinearSigmoid": unary("QLinearSigmoid"),
    "QLinearLeakyRelu": unary("QLinearLeakyRelu"),
    "QLinearSoftmax": softmax,
    "QLinearConcat": concat,
    "QLinearWhere": where,
    "QLinearAveragePool": average_pool,
    "QLinearGlobalAveragePool": global_average_pool,
    "QuantizeLinear": quantize,
    "DynamicQuantizeLinear": dynamic_quantize,
}
