"""The operators of random TFLite graphs that compute sums of products or windows: convolutions, products and pools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.graphs.graph import OMITTED, Quantization, need
from tests.fuzz.graphs.tflite_writer import TfliteWriter, compute, copy, draw_activation, new_result

_SAME, _VALID = schema.Padding.SAME, schema.Padding.VALID


def _weights(writer: TfliteWriter, shape: Sequence[int], axis: int) -> str:
    """Returns weights. int8 and int16 weights have one scale, or one per channel; uint8 weights have one scale and a
    zero point.
    """
    dtype = "uint8" if writer.dtype == "uint8" else "int8"
    if dtype == "uint8":
        quantization = writer.drawn_quantization(10 ** writer.rng.uniform(-3, -1), dtype)
    elif writer.often(0.5):
        scales = (10 ** writer.rng.uniform(-3, -1, shape[axis])).astype(np.float32).tolist()
        quantization = Quantization(tuple(scales), (0,) * shape[axis], axis)
    else:
        quantization = Quantization((float(np.float32(10 ** writer.rng.uniform(-3, -1))),), (0,))
    data = writer.stored(shape, dtype)
    if dtype == "int8":
        data = np.maximum(data, -127)
    return writer.constant(data, quantization=quantization)


def _bias(writer: TfliteWriter, count: int, x: str, weights: str, *, optional: bool = True) -> str:
    if optional and writer.often(0.3):
        return OMITTED
    quantization = writer.quantization(weights)
    scales = tuple(float(np.float32(writer.scale(x)) * np.float32(scale)) for scale in quantization.scales)
    dtype = np.int64 if writer.dtype == "int16" else np.int32
    data = writer.rng.integers(-8000, 8000, count).astype(dtype)
    return writer.constant(data, quantization=Quantization(scales, (0,) * len(scales), 0))


def _strides(writer: TfliteWriter) -> dict[str, int]:
    return {"strideH": int(writer.choose(1, 1, 2, 3)), "strideW": int(writer.choose(1, 1, 2, 3))}


def _dilation(writer: TfliteWriter, strides: dict[str, int]) -> dict[str, int]:
    if not writer.often(0.15) or max(strides.values()) > 1:
        return {"dilationHFactor": 1, "dilationWFactor": 1}
    return {"dilationHFactor": int(writer.choose(1, 2)), "dilationWFactor": int(writer.choose(1, 2))}


def _kernel(writer: TfliteWriter, shape: Sequence[int]) -> tuple[int, int]:
    height, width = (int(writer.rng.integers(1, min(4, size) + 1)) for size in shape[1:3])
    return height, width


def conv(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) == 4, "not an image")
    filters, kernel, strides = int(writer.rng.integers(1, 18)), _kernel(writer, shape), _strides(writer)
    weights = _weights(writer, (filters, *kernel, shape[3]), 0)
    options = {"table": "Conv2DOptionsT", "padding": int(writer.choose(_SAME, _VALID)), **strides}
    options |= {**_dilation(writer, strides), "fusedActivationFunction": draw_activation(writer)}
    inputs = [x, weights, _bias(writer, filters, x, weights)]
    compute(writer, "CONV_2D", inputs if inputs[2] or writer.often(0.5) else inputs[:2], options)


def depthwise(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) == 4, "not an image")
    multiplier, kernel, strides = int(writer.choose(1, 1, 1, 2, 3)), _kernel(writer, shape), _strides(writer)
    strides["strideW"] = strides["strideH"]
    weights = _weights(writer, (1, *kernel, shape[3] * multiplier), 3)
    options = {"table": "DepthwiseConv2DOptionsT", "padding": int(writer.choose(_SAME, _VALID)), **strides}
    options |= {**_dilation(writer, strides), "fusedActivationFunction": draw_activation(writer)}
    options["depthMultiplier"] = multiplier
    inputs = [x, weights, _bias(writer, shape[3] * multiplier, x, weights, optional=False)]
    compute(writer, "DEPTHWISE_CONV_2D", inputs, options)


def transpose_conv(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) == 4, "not an image")
    filters, kernel, strides = int(writer.rng.integers(1, 9)), _kernel(writer, shape), _strides(writer)
    padding = int(writer.choose(_SAME, _VALID))
    sides = zip(shape[1:3], strides.values(), kernel, strict=True)
    size = [side * stride if padding == _SAME else (side - 1) * stride + taps for side, stride, taps in sides]
    weights = _weights(writer, (filters, *kernel, shape[3]), 0)
    inputs = [writer.ints(shape[0], *size, filters), weights, x]
    if writer.often(0.6):
        inputs.append(_bias(writer, filters, x, weights, optional=False))
    options = {"table": "TransposeConvOptionsT", "padding": padding, **strides}
    result = new_result(writer, writer.drawn_quantization(writer.scale(x)))
    writer.values += writer.node("TRANSPOSE_CONV", inputs, options, [result], fit=True)


def fully_connected(writer: TfliteWriter) -> None:
    x = writer.any_value()
    depth, units = writer.shape(x)[-1], int(writer.rng.integers(1, 20))
    weights = _weights(writer, (units, depth), 0)
    options = {"table": "FullyConnectedOptionsT", "fusedActivationFunction": draw_activation(writer)}
    options["keepNumDims"] = writer.often(0.5)
    compute(writer, "FULLY_CONNECTED", [x, weights, _bias(writer, units, x, weights)], options)


def batch_matmul(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) >= 2, "a vector")
    adjoint = bool(writer.often(0.5))
    if writer.often(0.5):
        other = x
        options = {"table": "BatchMatMulOptionsT", "adjX": not adjoint, "adjY": adjoint}
    else:
        units = int(writer.rng.integers(1, 12))
        sizes = (units, shape[-1]) if adjoint else (shape[-1], units)
        other = writer.constant(writer.stored(sizes, writer.dtype), quantization=writer.drawn_quantization(0.02))
        options = {"table": "BatchMatMulOptionsT", "adjY": adjoint}
    compute(writer, "BATCH_MATMUL", [x, other], options)


def pool(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) == 4, "not an image")
    height, width = _kernel(writer, shape)
    options = {"table": "Pool2DOptionsT", "padding": int(writer.choose(_SAME, _VALID)), **_strides(writer)}
    options |= {"filterHeight": height, "filterWidth": width, "fusedActivationFunction": draw_activation(writer)}
    copy(writer, str(writer.choose("MAX_POOL_2D", "AVERAGE_POOL_2D")), [x], options)
