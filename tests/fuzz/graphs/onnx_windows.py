"""The operators of random ONNX graphs that compute sums of products or windows: convolutions, products and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.fuzz.graphs.graph import need
from tests.fuzz.graphs.onnx_writer import MICROSOFT, OnnxWriter, Value, finish


def _weights(writer: OnnxWriter, shape: Sequence[int], axis: int, activations: str) -> tuple[str, tuple[str, str], Any]:
    """Returns the name of stored weights, the names of their scale and zero point, and the values of the scales."""
    dtype = "int8" if activations == "int8" or writer.often(0.7) else "uint8"
    scales: Any = np.float32(10 ** writer.rng.uniform(-3, -1))
    if writer.often(0.5):
        scales = (10 ** writer.rng.uniform(-3, -1, shape[axis])).astype(np.float32)
    points = np.zeros(np.shape(scales), dtype)
    if dtype == "uint8" or writer.often(0.05):
        points = np.full(np.shape(scales), int(writer.rng.integers(-20, 20)) + (128 if dtype == "uint8" else 0), dtype)
    return writer.constant(writer.stored(shape, dtype)), writer.quantization(scales, points, dtype), scales


def _dequantized_weights(writer: OnnxWriter, shape: Sequence[int], axis: int, activations: str) -> tuple[str, Any]:
    """Returns real weights in one of the forms that quantizers write: stored and dequantized, or real, quantized and
    dequantized.
    """
    stored, parameters, scales = _weights(writer, shape, axis, activations)
    options = {"axis": axis} if np.ndim(scales) else {}
    if writer.often(0.12):
        point = writer.tensors[parameters[1]].data
        assert point is not None
        along = [-1 if index == axis else 1 for index in range(len(shape))] if np.ndim(scales) else []
        real = (writer.samples[stored].astype(np.float32) - point.astype(np.float32).reshape(along)) * np.reshape(
            scales, along
        ).astype(np.float32)
        (stored,) = writer.node("QuantizeLinear", [writer.constant(real, "float32"), *parameters], options)
    (name,) = writer.node("DequantizeLinear", [stored, *parameters], options)
    if writer.often(0.05):
        (name,) = writer.node("Identity", [name])
    return name, scales


def _bias(writer: OnnxWriter, count: int, x: Value, scales: Any) -> list[str]:
    """Returns an empty list, an int32 bias with the scale of the products, or a real bias."""
    scale = writer.samples[x.scale] * np.asarray(scales, np.float32)
    stored = writer.rng.integers(-8000, 8000, count).astype(np.int32)
    match int(writer.rng.integers(3)):
        case 0:
            return []
        case 1:
            parameters = [writer.constant(scale.astype(np.float32))]
            if writer.often(0.7):
                parameters.append(writer.constant(np.zeros(scale.shape, np.int32)))
            return writer.node(
                "DequantizeLinear", [writer.constant(stored), *parameters], {"axis": 0} if scale.ndim else {}
            )
    return [writer.constant((stored * scale * writer.rng.uniform(0.5, 2)).astype(np.float32))]


def _window(writer: OnnxWriter, spatial: Sequence[int], *, dilated: bool = True) -> dict[str, Any]:
    rng = writer.rng
    kernel = [int(rng.integers(1, min(4, size) + 1)) for size in spatial]
    options: dict[str, Any] = {"kernel_shape": kernel}
    if writer.often(0.5):
        options["strides"] = [int(rng.integers(1, 4)) for _ in spatial]
    if dilated and writer.often(0.15):
        options["dilations"] = [int(rng.integers(1, 3)) for _ in spatial]
    match int(rng.integers(4)):
        case 0:
            options["auto_pad"] = writer.choose("SAME_UPPER", "SAME_LOWER", "VALID")
        case 1 | 2:
            options["pads"] = [int(rng.integers(size)) for size in (*kernel, *kernel)]
    return options


def conv(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) in (3, 4), "not an image")
    channels = shape[1]
    groups = int(writer.choose(1, 1, channels, max(1, channels // 2) if channels % 2 == 0 else 1))
    filters = groups * int(writer.rng.integers(1, max(2, 17 // groups)))
    options = _window(writer, shape[2:]) | {"group": groups}
    weights_shape = (filters, channels // groups, *options["kernel_shape"])
    if writer.often(0.2):
        stored, parameters, _ = _weights(writer, weights_shape, 0, writer.dtype(x))
        bias = [writer.constant(writer.rng.integers(-5000, 5000, filters), "int32")] if writer.often(0.5) else []
        y = writer.quantization(np.float32(0.05 * 2 ** writer.rng.uniform(-4, 4)), 7, writer.dtype(x))
        (name,) = writer.node("QLinearConv", [x.name, *x.parameters, stored, *parameters, *y, *bias], options)
        writer.values.append(Value(name, *y))
        return
    weights, scales = _dequantized_weights(writer, weights_shape, 0, writer.dtype(x))
    operands = [writer.dequantize(x), weights, *_bias(writer, filters, x, scales)]
    finish(writer, writer.node("Conv", operands, options)[0], x)


def conv_transpose(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) == 4, "not an image")
    groups = int(writer.choose(1, 1, shape[1]))
    each = int(writer.rng.integers(1, 5))
    options = _window(writer, shape[2:], dilated=False) | {"group": groups}
    weights, scales = _dequantized_weights(writer, (shape[1], each, *options["kernel_shape"]), 1, writer.dtype(x))
    need(groups == 1 or not np.ndim(scales), "scales by the filters of a group")
    operands = [writer.dequantize(x), weights, *_bias(writer, groups * each, x, scales)[:1]]
    finish(writer, writer.node("ConvTranspose", operands, options)[0], x)


def matmul(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    depth, units = shape[-1], int(writer.rng.integers(1, 20))
    if writer.often(0.15):
        stored, parameters, _ = _weights(writer, (depth, units), 1, writer.dtype(x))
        y = writer.quantization(np.float32(0.05 * 2 ** writer.rng.uniform(-4, 4)), 7, writer.dtype(x))
        (name,) = writer.node("QLinearMatMul", [x.name, *x.parameters, stored, *parameters, *y])
        writer.values.append(Value(name, *y))
        return
    weights, _ = _dequantized_weights(writer, (depth, units), 1, writer.dtype(x))
    (real,) = writer.node("MatMul", [writer.dequantize(x), weights])
    if writer.often(0.5):
        operands = [real, writer.constant((writer.rng.normal(0, 1, units) * writer.samples[real].std()).astype("f4"))]
        (real,) = writer.node("Add", operands if writer.often(0.7) else operands[::-1])
    finish(writer, real, x)


def matmul_of_two(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) >= 2, "a vector")
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    (other,) = writer.node("Transpose", [writer.dequantize(x)], {"perm": order})
    if writer.often(0.7):
        other = writer.dequantize(writer.quantize(other, writer.dtype(x), x))
    finish(writer, writer.node("MatMul", [writer.dequantize(x), other])[0], x)


def gemm(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) == 2, "not a matrix")
    units, transposed = int(writer.rng.integers(1, 20)), int(writer.rng.integers(2))
    sizes = (units, shape[1]) if transposed else (shape[1], units)
    weights, scales = _dequantized_weights(writer, sizes, 1 - transposed, writer.dtype(x))
    options: dict[str, Any] = {"transB": transposed}
    if writer.often(0.1):
        options |= {"alpha": float(writer.choose(0.5, 2.0)), "beta": float(writer.choose(1.0, 0.5))}
    operands = [writer.dequantize(x), weights, *_bias(writer, units, x, scales)]
    finish(writer, writer.node("Gemm", operands, options)[0], x)


def dynamic_matmul(writer: OnnxWriter) -> None:
    x = writer.any_value()
    units = int(writer.rng.integers(1, 16))
    stored, parameters, _ = _weights(writer, (writer.shape(x.name)[-1], units), 1, "uint8")
    real = writer.dequantize(x)
    if writer.often(0.4):
        bias = [writer.constant(writer.rng.normal(0, 1, units), "float32")] if writer.often(0.5) else []
        operands = [real, stored, *parameters, *bias]
        (result,) = writer.node("DynamicQuantizeMatMul", operands, domain=MICROSOFT)
    else:
        quantized, scale, point = writer.node("DynamicQuantizeLinear", [real], n=3)
        zero = [] if not np.any(writer.samples[parameters[1]]) and writer.often(0.5) else [parameters[1]]
        (sums,) = writer.node("MatMulInteger", [quantized, stored, point, *zero])
        (cast,) = writer.node("Cast", [sums], {"to": 1})
        (factor,) = writer.node("Mul", [scale, parameters[0]])
        (result,) = writer.node("Mul", [cast, factor])
    finish(writer, result)


def pool(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) in (3, 4), "not an image")
    op_type = str(writer.choose("MaxPool", "AveragePool"))
    options = _window(writer, shape[2:], dilated=op_type == "MaxPool")
    if op_type == "AveragePool" and writer.often(0.3):
        options["count_include_pad"] = 1
    if "auto_pad" not in options and writer.often(0.2):
        options["ceil_mode"] = 1
    (real,) = writer.node(op_type, [writer.dequantize(x)], options)
    finish(writer, real, x, same=0.8)
