"""Quantized activations, sums and concatenations (src/operator/quantization/mkldnn/)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.mxnet.node import Node, PendingSum, Tensor, Value, edges
from service.compiler.importers.mxnet.scales import max_abs, source_type, steps_per_unit, type_of
from service.compiler.qnn import ops

_DATA = ("int8", "uint8")
_MOST_PARTS = 1 << 12


def quantized_activation(node: Node) -> list[Value]:
    """Applies ReLU without changing the type (`MKLDNNQuantizedActForward`)."""
    node.count(3)
    x, data = node.tensor(0, *_DATA), node.range(1)
    kind = node.attributes.text("act_type", "")
    if kind != "relu":
        node.unsupported(f"has the act_type {kind!a:.20}; only relu can be compiled")
    if x.dtype == "uint8":
        return [x, *edges(*data)]
    quantized = type_of(x.dtype, steps_per_unit(x.dtype, *data))
    return [node.result(node.emit(ops.requantize(x.expr, quantized, replace(quantized, storage_min=0)))), *edges(*data)]


def quantized_add(node: Node) -> list[Value]:
    """`MKLDNNQuantizedElemwiseAddForward`. Without a calibrated range, the sum stays int32 until a requantize operator
    reads it.
    """
    node.count(6)
    (a, b), (a_range, b_range) = (node.tensor(index, *_DATA) for index in range(2)), (node.range(2), node.range(4))
    node.require(a.shape == b.shape, f"adds tensors of different shapes, {list(a.shape)} and {list(b.shape)}")
    if a.dtype != b.dtype:
        node.unsupported(
            f"adds {b.dtype} to {a.dtype}, which cannot be compiled, because MXNet first clips one of them"
        )
    steps = [steps_per_unit(each.dtype, *limits) for each, limits in ((a, a_range), (b, b_range))]
    types = [type_of(a.dtype, each) for each in steps]
    calibrated = node.calibrated()
    if calibrated is None:
        largest = max_abs(*a_range) + max_abs(*b_range)
        total = Tensor(a.expr, "int32", a.shape, PendingSum(a.expr, b.expr, types[0], types[1]))
        return [total, *edges(-largest, largest)]
    out_steps = steps_per_unit("int8", *calibrated)
    out_type = type_of("int8", out_steps)
    lhs, rhs = (source_type(a.dtype, np.array([out_steps / each]), out_type) for each in steps)
    return [node.result(node.emit(ops.add(a.expr, b.expr, lhs, rhs, out_type))), *edges(*calibrated)]


def quantized_concat(node: Node) -> list[Value]:
    """Concatenates parts, rescaled to the widest of their ranges. The result is int8 if one part is int8
    (`MKLDNNQuantizedConcatForward`).
    """
    number = node.attributes.integer("num_args", 1)
    node.require(number <= _MOST_PARTS, f"joins {number} tensors, more than {_MOST_PARTS}")
    node.count(3 * number)
    parts = [node.tensor(index, *_DATA) for index in range(number)]
    ranges = [node.range(number + 2 * index) for index in range(number)]
    rank, axis = len(parts[0].shape), node.attributes.integer("dim", 1, least=-8)
    node.require(-rank <= axis < rank, f"joins along axis {axis}, but its inputs have {rank} dimensions")
    node.require(all(len(part.shape) == rank for part in parts), "joins tensors of different ranks")
    lows, highs = zip(*ranges, strict=True)
    low, high = np.float32(np.min([0, *lows])), np.float32(np.max([0, *highs]))
    dtype = "int8" if any(part.dtype == "int8" for part in parts) else "uint8"
    out_steps = steps_per_unit(dtype, low, high)
    out_type = type_of(dtype, out_steps)
    rescaled = [_rescaled(node, *each, out_steps, dtype) for each in zip(parts, ranges, strict=True)]
    call = ops.concatenate(rescaled, [out_type] * number, out_type, axis % rank)
    return [node.result(node.emit(call)), *edges(low, high)]


def _rescaled(
    node: Node, part: Tensor, limits: tuple[np.float32, np.float32], out_steps: np.float32, dtype: str
) -> relax.Expr:
    steps, out_type = steps_per_unit(part.dtype, *limits), type_of(dtype, out_steps)
    if part.dtype == dtype and steps == out_steps:
        return part.expr
    if steps == out_steps:
        node.unsupported(f"joins {part.dtype} and {dtype} of the same scale, which cannot be compiled")
    in_type = source_type(part.dtype, np.array([out_steps / steps]), out_type)
    return node.emit(ops.requantize(part.expr, in_type, out_type), "rescaled")
