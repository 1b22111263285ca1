"""Operators on 8-bit tensors, apart from layers (src/operator/quantization/, most of them in its folder mkldnn)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.builder import pooling as builder
from service.compiler.importers.channels_first import in_channels_last
from service.compiler.importers.mxnet.node import Node, Stored, Tensor, Value, edges
from service.compiler.importers.mxnet.operators import images, real
from service.compiler.importers.mxnet.scales import (
    INT32_RANGE,
    LARGEST,
    QUANTIZED_RANGES,
    Range,
    max_abs,
    product_range,
    source_type,
    steps_per_unit,
    type_of,
)
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_MOST_PARTS = 1 << 12


def quantize(node: Node) -> list[Value]:
    """Converts float32 to int8 or uint8 (`MKLDNNQuantizeComputeKer` in mkldnn_quantize_v2-inl.h)."""
    node.count(1)
    x, (low, high) = node.tensor(0, "float32"), _calibrated(node)
    dtype = _out_dtype(node, low)
    return node.outputs(ops.quantize(x.expr, type_of(dtype, steps_per_unit(dtype, low, high))), (low, high))


def requantize(node: Node) -> list[Value]:
    """Converts int32 to int8 or uint8 (`MKLDNNRequantizeForwardKer` in mkldnn_requantize-inl.h)."""
    node.count(3)
    x, (low, high) = node.tensor(0, "int32"), _calibrated(node)
    dtype, real_range = _out_dtype(node, low), max_abs(low, high)
    steps = np.float32(LARGEST[dtype] / real_range)
    out_type, limits = type_of(dtype, steps), (np.float32(0) if dtype == "uint8" else -real_range, real_range)
    if x.addends is not None:
        return node.outputs(ops.add(*x.addends, out_type), limits)
    unit = np.float32(max_abs(*node.range(1)) / INT32_RANGE)
    return node.outputs(
        ops.requantize(x.expr, source_type("int32", np.float32(unit * steps), out_type), out_type), limits
    )


def dequantize(node: Node) -> list[Value]:
    """Converts int8 or uint8 to float32 (`MKLDNNDequantizeComputeKer` in mkldnn_dequantize-inl.h)."""
    node.count(3)
    x = node.stored(0, 1)
    unit = np.float32(max_abs(*x.range) / QUANTIZED_RANGES[x.dtype])
    return node.outputs(ops.dequantize(x.expr, QuantizedType(x.dtype, (float(unit),))))


def _calibrated(node: Node) -> Range:
    found = node.calibrated()
    if found is None:
        hint = "quantize the model with calib_mode='naive' or 'entropy'"
        node.unsupported("has no calibrated range, and ranges cannot be computed at run time", hint=hint)
    return found


def _out_dtype(node: Node, low: np.float32) -> str:
    """Returns the output type, determined as by `GetQuantizeOutputType` in quantize_v2-inl.h and requantize-inl.h."""
    named = node.attributes.text("out_type", "int8")
    node.require(named in ("auto", "int8", "uint8"), f"has the unknown output type {named!a:.20}")
    return ("uint8" if low >= 0 else "int8") if named == "auto" else named


def activation(node: Node) -> list[Value]:
    """Applies ReLU without changing the type (`MKLDNNQuantizedActForward`)."""
    node.count(3)
    x = node.stored(0, 1)
    node.choice("act_type", "", "relu")
    if x.dtype == "uint8":
        return [x, *edges(x.range)]
    return node.outputs(ops.requantize(x.expr, x.type, replace(x.type, storage_min=0)), x.range)


def add(node: Node) -> list[Value]:
    """`MKLDNNQuantizedElemwiseAddForward`. Without a calibrated range, the sum stays int32 until a requantize operator
    reads it.
    """
    node.count(6)
    a, b = node.stored(0, 2), node.stored(1, 4)
    node.require(a.shape == b.shape, f"adds tensors of different shapes, {list(a.shape)} and {list(b.shape)}")
    what = f"adds {b.dtype} to {a.dtype}, which cannot be compiled, because MXNet first clips one of them"
    node.require_supported(a.dtype == b.dtype, what)
    calibrated = node.calibrated()
    if calibrated is None:
        largest = max_abs(*a.range) + max_abs(*b.range)
        return [Tensor(a.expr, (a.expr, b.expr, a.type, b.type)), *edges((-largest, largest))]
    steps = steps_per_unit("int8", *calibrated)
    out_type = type_of("int8", steps)
    lhs, rhs = (source_type(each.dtype, np.float32(steps / each.steps), out_type) for each in (a, b))
    return node.outputs(ops.add(a.expr, b.expr, lhs, rhs, out_type), calibrated)


def multiply(node: Node) -> list[Value]:
    """`QuantizedElemwiseMulOpForward` (quantized_elemwise_mul.cc): scales the product of stored values and truncates
    it. Without a calibrated range, the result is the product itself; with `enable_float_output`, it is real.
    """
    node.count(6)
    a, b = (Stored(node.tensor(index, "int8").expr, range=node.range(2 + 2 * index)) for index in range(2))
    node.require(a.shape == b.shape, f"multiplies tensors of different shapes, {list(a.shape)} and {list(b.shape)}")
    whole = [node.emit(relax.op.astype(each.expr, "int32"), "operand") for each in (a, b)]
    product, calibrated = node.emit(relax.op.multiply(*whole), "product"), node.calibrated()
    is_float = node.attributes.flag("enable_float_output")
    if calibrated is None and not is_float:
        return node.outputs(product, product_range("int8", a.range, b.range))
    steps = np.float32(1) if is_float or calibrated is None else steps_per_unit("int8", *calibrated)
    factor = np.float32(np.float32(steps / a.steps) / b.steps)
    if is_float:
        factor = np.float32(1.0 / float(a.steps) / float(b.steps))
    real_product = node.emit(relax.op.astype(product, "float32"), "real")
    scaled = relax.op.multiply(real_product, relax.const(factor, "float32"))
    if is_float:
        return node.outputs(scaled)
    # values beyond the range wrap around, as in MXNet's code for x86-64
    whole_steps = node.emit(relax.op.astype(node.emit(scaled, "scaled"), "int32"), "whole")
    return node.outputs(relax.op.astype(whole_steps, "int8"), calibrated)


def embedding(node: Node) -> list[Value]:
    """`QuantizedEmbeddingOpForward` (quantized_indexing_op.cc): int8 rows of a table."""
    node.count(4)
    table = node.array(1, "int8", 2)
    return [*node.standard("Gather", table, images.row_indices(node, len(table))), *edges(node.range(2))]


def batch_norm(node: Node) -> list[Value]:
    """`MKLDNNQuantizedBatchNormForward`: a factor and an addend for each channel, by a fused multiply-add that is
    rounded to int8. uint8 is converted to int8 first.
    """
    node.count(7)
    x, calibrated = node.stored(0, 5), node.calibrated()
    if calibrated is None:
        node.unsupported("has no calibrated range, without which MXNet does not run it either")
    stored = x.expr
    if x.dtype == "uint8":
        halved = QuantizedType("int8", (1.0,))
        ratio = np.float32(QUANTIZED_RANGES["int8"] / QUANTIZED_RANGES["uint8"])
        stored = node.emit(ops.requantize(stored, source_type("uint8", ratio, halved), halved), "signed")
    factors, addends = _normalization(node, x, calibrated)
    rows = [relax.const(each.reshape(-1, *[1] * (len(x.shape) - 2)), "float32") for each in (factors, addends)]
    wide = node.emit(relax.op.astype(stored, "float32"), "real")
    made = node.emit(ops.real_fma(wide, *rows), "normalized")
    return node.outputs(ops.quantize(made, QuantizedType("int8", (1.0,))), calibrated)


def _normalization(node: Node, x: Stored, calibrated: Range) -> tuple[Array, Array]:
    gamma, beta, mean, variance = (node.array(index, "float32", 1) for index in range(1, 5))
    fits = all(len(each) == x.shape[1] for each in (gamma, beta, mean, variance))
    node.require(fits, f"has parameters that do not fit {x.shape[1]} channels")
    eps = node.attributes.number("eps", 1e-3)
    inverse = (1.0 / np.sqrt(variance.astype(np.float64) + eps)).astype(np.float32)
    limit, width = max_abs(*x.range), max_abs(*calibrated)
    weights = gamma * inverse * limit / width
    addends = (beta - mean * gamma * inverse) * QUANTIZED_RANGES["int8"] / width
    # oneDNN divides by the root of a variance of 1
    root = np.sqrt(np.float32(1) + np.float32(eps), dtype=np.float32)
    return (weights / root).astype(np.float32), addends.astype(np.float32)


def concat(node: Node) -> list[Value]:
    """Concatenates parts, rescaled to the widest of their ranges. The result is int8 if one part is int8
    (`MKLDNNQuantizedConcatForward`).
    """
    number = node.attributes.integer("num_args", 1)
    node.require(number <= _MOST_PARTS, f"joins {number} tensors, more than {_MOST_PARTS}")
    node.count(3 * number)
    parts = [node.stored(index, number + 2 * index) for index in range(number)]
    axis = movement.joined_axis(node, [part.shape for part in parts], node.attributes.integer("dim", 1, least=-8))
    lows, highs = zip(*(part.range for part in parts), strict=True)
    low, high = np.float32(min(0, *lows)), np.float32(max(0, *highs))
    dtype = "int8" if any(part.dtype == "int8" for part in parts) else "uint8"
    out_type = type_of(dtype, steps_per_unit(dtype, low, high))
    rescaled = [_rescaled(node, part, steps_per_unit(dtype, low, high), dtype) for part in parts]
    return node.outputs(ops.concatenate(rescaled, [out_type] * number, out_type, axis), (low, high))


def _rescaled(node: Node, part: Stored, steps: np.float32, dtype: str) -> relax.Expr:
    if part.dtype == dtype and part.steps == steps:
        return part.expr
    if part.steps == steps:
        node.unsupported(f"joins {part.dtype} and {dtype} of the same scale, which cannot be compiled")
    out_type = type_of(dtype, steps)
    in_type = source_type(part.dtype, np.float32(steps / part.steps), out_type)
    return node.emit(ops.requantize(part.expr, in_type, out_type), "rescaled")


def flatten(node: Node) -> list[Value]:
    """Flattens `[N, …]` to `[N, K]`; keeps the range (quantized_flatten-inl.h)."""
    node.count(3)
    x = node.stored(0, 1)
    return [Tensor(movement.reshape(node, x.expr, real.rows_of(node, x))), *edges(x.range)]


def pooling(node: Node) -> list[Value]:
    """Pools stored values; keeps the range (quantized_pooling.cc). MXNet counts the zeros of the padding in an average
    unless an attribute disables this.
    """
    node.count(3)
    x = node.stored(0, 1)
    is_max, windows, counted = real.geometry(node, x)

    def body(image: relax.Var) -> relax.Expr:
        return builder.pooled(node, image, windows, (x.type, x.type), is_max=is_max, counted=counted)

    return [Tensor(in_channels_last(node.emit, x.expr, body)), *edges(x.range)]
