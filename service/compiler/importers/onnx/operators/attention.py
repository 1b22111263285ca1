"""Attention as ONNX Runtime's optimizer fuses it (com.microsoft): Attention, QAttention and MultiHeadAttention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import attending, dynamic, matrix
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.qnn.graph import shape_of

_MASKED = -10000.0  # default of mask_filter_value


def attention(node: Node) -> Value:
    """Inputs: input `[B, S, H]`, weights `[H, 3 * N]`, bias `[3 * N]`, mask_index, past `[2, B, heads, P, size]`,
    attention_bias.
    """
    float32(node, 0, 1)
    part = replace(node.operator, op_type="MatMul", inputs=node.operator.inputs[:2], attributes={})
    rows = matrix.matmul(Node(node.state, part))
    if node.has(2):
        float32(node, 2)
        rows = node.emit(relax.op.add(rows, node.expr(2)), "rows")
    return _self_attention(node, rows, mask=3, past=4, bias=5)


def quantized_attention(node: Node) -> Value:
    """Inputs: input, weights, bias, input_scale, weight_scale, mask_index, input_zero_point, weight_zero_point,
    past.
    """
    positions = (0, 1, 3, 4, 6, 7, 2)  # the inputs, in the order of MatMulIntegerToFloat's
    inputs = tuple(node.operator.inputs[position] if node.has(position) else "" for position in positions)
    part = replace(node.operator, op_type="com.microsoft.MatMulIntegerToFloat", inputs=inputs, attributes={})
    rows = dynamic.matmul_integer_to_float(Node(node.state, part))
    return _self_attention(node, rows, mask=5, past=8, bias=9)


def _self_attention(node: Node, rows: relax.Expr, mask: int, past: int, bias: int) -> Value:
    """Converts attention whose queries, keys and values are the three parts of each row, `[B, S, 3 * N]`."""
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        node.unsupported("uses do_rotary or past_present_share_buffer, which cannot be compiled")
    batch, tokens, width = shape_of(rows)
    sizes = node.attribute("qkv_hidden_sizes", ()) or (width // 3,) * 3
    node.require(
        len(sizes) == 3 and sum(sizes) == width and sizes[0] == sizes[1],
        f"has qkv_hidden_sizes {list(sizes)[:8]}, which do not fit {width} columns",
    )
    starts = (0, sizes[0], 2 * sizes[0])
    parts = [
        node.emit(relax.op.strided_slice(rows, [2], [start], [start + size], [1]), "part")
        for start, size in zip(starts, sizes, strict=True)
    ]
    query, key, value = (attending.heads_of(node, part) for part in parts)
    before, present = 0, None
    if node.has(past):
        float32(node, past)
        given = node.shape(past)
        fits = len(given) == 5 and (*given[:3], given[4]) == (2, batch, *shape_of(key)[1::2])
        node.require(
            fits and shape_of(key) == shape_of(value), f"has past keys and values {list(given)}, which do not fit"
        )
        before = given[3]
        key, value = (_behind(node, x, past, index) for index, x in enumerate((key, value)))
    if any(node.operator.outputs[1:2]):
        node.require(shape_of(key) == shape_of(value), "returns keys and values of different sizes as one tensor")
        whole = (1, *shape_of(key))
        present = node.emit(
            relax.op.concat([node.emit(relax.op.reshape(x, whole), "kept") for x in (key, value)], 0), "present"
        )
    length = before + tokens
    added = [*_mask(node, mask, (batch, tokens, length)), *attending.bias(node, bias)]
    if node.attribute("unidirectional", 0):
        added.append(attending.causal(node, tokens, length, before))
    return attending.join_heads(node, attending.attended(node, query, key, value, added, _scale(node))), present


def _behind(node: Node, x: relax.Expr, past: int, index: int) -> relax.Expr:
    """Returns the keys (`index` 0) or values (1), preceded by those of earlier calls."""
    part = node.emit(relax.op.strided_slice(node.expr(past), [0], [index], [index + 1], [1]), "past")
    earlier = node.emit(relax.op.reshape(part, node.shape(past)[1:]), "past")
    return node.emit(relax.op.concat([earlier, x], 2), "whole")


def multi_head_attention(node: Node) -> Value:
    """Inputs: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value. Query, key and value are
    `[B, S, N]`; key and value may also be `[B, heads, S, size]`.
    """
    if node.has(8) or any(node.operator.outputs[3:]):
        node.unsupported("writes into past keys or returns its scores, which cannot be compiled")
    query, key, value = _operands(node)
    node.require(node.has(6) == node.has(7), "has past keys without past values, or the reverse")
    key, value = (attending.with_past(node, x, past) for x, past in ((key, 6), (value, 7)))
    tokens, length = shape_of(query)[2], shape_of(key)[2]
    added = [*_mask(node, 4, (shape_of(query)[0], tokens, length)), *attending.bias(node, 5)]
    if node.attribute("unidirectional", 0):
        added.append(attending.causal(node, tokens, length, length - tokens))
    return attending.join_heads(node, attending.attended(node, query, key, value, added, _scale(node))), key, value


def _operands(node: Node) -> list[relax.Expr]:
    """Returns queries, keys and values, `[B, heads, S, size]`, after their biases were added."""
    if not (node.has(1) and node.has(2)):
        node.unsupported(
            "has queries, keys and values packed into one tensor, which ONNX Runtime's CPU cannot compute either"
        )
    float32(node, 0, 1, 2)
    sizes, operands = (
        [node.shape(position)[-1] for position in range(3)],
        [node.expr(position) for position in range(3)],
    )
    if node.has(3):
        node.require(
            node.shape(3) == (sum(sizes),) and len(node.shape(1)) == 3,
            f"has a bias of shape {list(node.shape(3))}, which does not fit",
        )
        starts = np.cumsum([0, *sizes])
        for position, (start, size) in enumerate(zip(starts, sizes, strict=False)):
            part = relax.op.strided_slice(node.expr(3), [0], [int(start)], [int(start) + size], [1])
            operands[position] = node.emit(relax.op.add(operands[position], node.emit(part, "bias")), "biased")
    return [x if len(shape_of(x)) == 4 else attending.heads_of(node, x) for x in operands]


def _scale(node: Node) -> float | None:
    return node.attribute("scale", 0.0) or None


def _mask(node: Node, index: int, extents: tuple[int, int, int]) -> list[relax.Expr]:
    """Returns the addend by which a mask hides keys. The mask has one of four forms. `[B, L]`, for all queries, and
    `[B, S, L]`, for each query, are 0 for hidden keys. `[B]` is the number of valid keys, and `[2 * B]` is that number
    and the index of the first valid key.
    """
    if not node.has(index):
        return []
    batch, tokens, length = extents
    shape, dtype = node.shape(index), node.dtype(index)
    if dtype not in ("int32", "int64", "bool"):
        node.unsupported(f"has a mask of {dtype}, which cannot be compiled", node.name(index))
    if shape in ((batch,), (2 * batch,)) and dtype != "bool":
        row = node.literal(np.arange(length, dtype=dtype).reshape(1, 1, 1, length))
        there = node.emit(relax.op.less(row, _bounds(node, index, 0, batch)), "there")
        if shape != (batch,):
            begun = node.emit(relax.op.greater_equal(row, _bounds(node, index, batch, batch)), "begun")
            there = node.emit(relax.op.logical_and(there, begun), "there")
    elif shape in ((batch, length), (batch, tokens, length)):
        reshaped = (batch, 1, 1, length) if len(shape) == 2 else (batch, 1, tokens, length)
        there = node.emit(relax.op.reshape(node.expr(index), reshaped), "mask")
        if dtype != "bool":
            there = node.emit(relax.op.greater(there, node.literal(np.array(0, dtype))), "there")
    else:
        node.unsupported(f"has a mask of {list(shape)} for {tokens} queries and {length} keys", node.name(index))
    return [attending.hidden(node, there, node.attribute("mask_filter_value", _MASKED))]


def _bounds(node: Node, index: int, start: int, batch: int) -> relax.Expr:
    """Returns elements `start` to `start + batch` of an input: one for each sample."""
    part = node.emit(relax.op.strided_slice(node.expr(index), [0], [start], [start + batch], [1]), "bounds")
    return node.emit(relax.op.reshape(part, (batch, 1, 1, 1)), "bounds")


ATTENTION: dict[str, tuple[Convert, tuple[int, int]]] = {
    "com.microsoft.Attention": (attention, (2, 7)),
    "com.microsoft.MultiHeadAttention": (multi_head_attention, (1, 10)),
    "com.microsoft.QAttention": (quantized_attention, (5, 9)),
}
