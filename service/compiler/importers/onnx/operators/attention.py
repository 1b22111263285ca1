"""Attention as ONNX Runtime's optimizer fuses it (com.microsoft): Attention, QAttention, MultiHeadAttention and
EmbedLayerNormalization; and ONNX's own Attention and RotaryEmbedding.

Queries, keys and values are `[batch, heads, tokens, size]`; all is float32, as in
contrib_ops/cpu/bert/attention_cpu_base.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.coverage import INSIDE
from service.compiler.importers import real
from service.compiler.importers.onnx.model import shortened
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import dynamic, matrix
from service.compiler.importers.onnx.operators.normalizing import scaled
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of

_MASKED = -10000.0  # com.microsoft's default of mask_filter_value
_LOWEST = float(np.finfo(np.float32).min)
_ATTENTION_ATTRIBUTES = frozenset(
    {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision"}
)
_LARGEST_MASK = 1 << 24


def attention(node: Node) -> Value:
    """input `[B, S, H]`, weights `[H, 3 * N]`, bias `[3 * N]`, mask_index, past, attention_bias."""
    _require_left_out(node, (4, "past"), (6, "past_sequence_length"))
    float32(node, 0, 1, 2)
    part = replace(node.operator, op_type="MatMul", inputs=node.operator.inputs[:2], attributes={})
    product = matrix.matmul(Node(node.state, part))
    rows = node.emit(relax.op.add(product, node.expr(2)), "rows")
    return _self_attention(node, rows, mask=3, bias=5), None


def quantized_attention(node: Node) -> Value:
    """input, weights, bias, input_scale, weight_scale, mask_index, input_zero_point, weight_zero_point, past."""
    _require_left_out(node, (8, "past"))
    places = (0, 1, 3, 4, 6, 7, 2)  # as MatMulIntegerToFloat has them
    inputs = tuple(node.operator.inputs[place] if node.has(place) else "" for place in places)
    part = replace(node.operator, op_type="com.microsoft.MatMulIntegerToFloat", inputs=inputs, attributes={})
    rows = dynamic.matmul_integer_to_float(Node(node.state, part))
    return _self_attention(node, rows, mask=5, bias=9), None


def _self_attention(node: Node, rows: relax.Expr, mask: int, bias: int) -> Value:
    """Of queries, keys and values that lie side by side in rows `[B, S, 3 * N]`."""
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        node.unsupported("rotates its positions, or keeps past keys")
    batch, tokens, width = shape_of(rows)
    sizes = node.attribute("qkv_hidden_sizes", ()) or (width // 3,) * 3
    node.require(len(sizes) == 3 and sum(sizes) == width and sizes[0] == sizes[1], f"has parts of {list(sizes)[:8]}")
    starts = (0, sizes[0], 2 * sizes[0])
    parts = [
        node.emit(relax.op.strided_slice(rows, [2], [start], [start + size], [1]), "part")
        for start, size in zip(starts, sizes, strict=True)
    ]
    query, key, value = (_heads(node, part) for part in parts)
    added = [*_mask(node, mask, (batch, tokens, tokens)), *_bias(node, bias)]
    if node.attribute("unidirectional", 0):
        added.append(_causal(node, tokens, tokens, behind=0))
    return _joined(node, _attended(node, query, key, value, added, _scale(node)))


def multi_head_attention(node: Node) -> Value:
    """query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value: `[B, S, N]` each, or keys and
    values `[B, heads, S, size]`."""
    _require_left_out(node, (6, "past_key"), (7, "past_value"), (8, "past_sequence_length"))
    if not (node.has(1) and node.has(2)):
        node.unsupported("has its queries, keys and values packed into one tensor")
    float32(node, 0, 1, 2)
    sizes, operands = [node.shape(place)[-1] for place in range(3)], [node.expr(place) for place in range(3)]
    if node.has(3):
        node.require(node.shape(3) == (sum(sizes),) and len(node.shape(1)) == 3, f"has a bias of {node.shape(3)}")
        starts = np.cumsum([0, *sizes])
        for place, (start, size) in enumerate(zip(starts, sizes, strict=False)):
            part = relax.op.strided_slice(node.expr(3), [0], [int(start)], [int(start) + size], [1])
            operands[place] = node.emit(relax.op.add(operands[place], node.emit(part, "bias")), "biased")
    query, key, value = (x if len(shape_of(x)) == 4 else _heads(node, x) for x in operands)
    tokens, length = shape_of(query)[2], shape_of(key)[2]
    added = [*_mask(node, 4, (shape_of(query)[0], tokens, length)), *_bias(node, 5)]
    if node.attribute("unidirectional", 0):
        added.append(_causal(node, tokens, length, behind=length - tokens))
    return _joined(node, _attended(node, query, key, value, added, _scale(node))), None, None


def onnx_attention(node: Node) -> Value:
    """Q, K, V, attn_mask, past_key, past_value (ONNX, operator set 23): `[B, heads, S, size]`, or `[B, S, N]` with the
    heads as attributes. Fewer heads of keys and values serve several of queries."""
    _require_left_out(node, (4, "past_key"), (5, "past_value"), (6, "nonpad_kv_seqlen"))
    if node.attribute("softcap", 0.0) or any(node.operator.outputs[1:]):
        node.unsupported("caps its scores, or gives more than its result")
    for name in node.operator.attributes.keys() - _ATTENTION_ATTRIBUTES:
        node.unsupported(f"has the attribute {shortened(name)}")
    float32(node, 0, 1, 2)
    names = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    operands = [node.expr(place) for place in range(3)]
    query, key, value = (
        x if len(shape_of(x)) == 4 else _heads(node, x, node.attribute(name, 0))
        for x, name in zip(operands, names, strict=True)
    )
    heads, groups = shape_of(query)[1], shape_of(key)[1]
    node.require(heads % groups == 0, f"has {heads} heads of queries and {groups} of keys")
    if groups < heads:
        key, value = (_repeated(node, x, heads // groups) for x in (key, value))
    tokens, length = shape_of(query)[2], shape_of(key)[2]
    added = []
    if node.has(3):
        mask = node.expr(3)
        if node.dtype(3) == "bool":
            added.append(_hidden(node, mask, -math.inf))
        else:
            float32(node, 3)
            added.append(mask)
    if node.attribute("is_causal", 0):
        added.append(_causal(node, tokens, length, behind=0, low=-math.inf))
    scale = node.attribute("scale", 0.0) or 1 / math.sqrt(shape_of(query)[3])
    result = _attended(node, query, key, value, added, scale)
    return _joined(node, result) if len(node.shape(0)) == 3 else node.emit(result)


def rotary_embedding(node: Node) -> Value:
    """X, cos_cache, sin_cache, position_ids (ONNX, operator set 23): pairs of elements of each head are turned by an
    angle that their position has."""
    float32(node, 0, 1, 2)
    shape, rank = node.shape(0), len(node.shape(0))
    heads = node.attribute("num_heads", 0) if rank == 3 else shape[1]
    node.require((rank in (3, 4) and heads > 0 and shape[-1] % heads == 0) or rank == 4, f"turns {list(shape)}")
    x = node.expr(0)
    if rank == 3:
        x = node.emit(relax.op.reshape(x, (*shape[:2], heads, shape[2] // heads)), "heads")
    else:
        x = node.emit(relax.op.permute_dims(x, (0, 2, 1, 3)), "heads")
    size = shape_of(x)[3]
    turned = node.attribute("rotary_embedding_dim", 0) or size
    node.require(turned % 2 == 0 and turned <= size, f"turns {turned} of {size} elements")
    caches = []
    for place in (1, 2):
        cache = node.expr(place)
        if node.has(3):
            cache = node.emit(relax.op.take(cache, node.expr(3), 0, mode="clip"), "angles")
        rows = shape_of(cache)
        node.require(len(rows) == 3 and rows[-1] == turned // 2, f"has angles of {list(rows)}")
        caches.append(node.emit(relax.op.reshape(cache, (rows[0], rows[1], 1, rows[2])), "angles"))
    pairs = node.attribute("interleaved", 0)
    step, half = (2, 1) if pairs else (1, turned // 2)
    first, second = (
        node.emit(relax.op.strided_slice(x, [3], [start], [end], [step]), "part")
        for start, end in ((0, turned if pairs else half), (half, turned))
    )
    products = [
        node.emit(relax.op.multiply(part, cache), "product")
        for part, cache in ((first, caches[0]), (second, caches[1]), (first, caches[1]), (second, caches[0]))
    ]
    parts = [
        node.emit(relax.op.subtract(products[0], products[1]), "turned"),
        node.emit(relax.op.add(products[2], products[3]), "turned"),
    ]
    if pairs:
        each = [node.emit(relax.op.reshape(part, (*shape_of(part), 1)), "pair") for part in parts]
        both = node.emit(relax.op.concat(each, 4), "pairs")
        parts = [node.emit(relax.op.reshape(both, (*shape_of(x)[:3], turned)), "pairs")]
    if turned < size:
        parts.append(node.emit(relax.op.strided_slice(x, [3], [turned], [size], [1]), "rest"))
    whole = node.emit(relax.op.concat(parts, 3), "whole") if len(parts) > 1 else parts[0]
    if rank == 4:
        return node.emit(relax.op.permute_dims(whole, (0, 2, 1, 3)))
    return node.emit(relax.op.reshape(whole, shape))


def embed_layer_normalization(node: Node) -> Value:
    """input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta, mask, position_ids:
    the sum of up to three embeddings, normalized; and the number of unmasked tokens of each sample."""
    float32(node, 2, 3, 5, 6)
    tokens = node.shape(0)[1]
    total = _looked_up(node, 2, 0)
    if node.has(8):
        positions = _looked_up(node, 3, 8)
    else:
        node.require(tokens <= node.shape(3)[0], f"has {tokens} tokens and {node.shape(3)[0]} positions")
        positions = node.emit(relax.op.strided_slice(node.expr(3), [0], [0], [tokens], [1]), "positions")
    total = node.emit(relax.op.add(total, positions), "placed")
    if node.has(4) and node.has(1):
        total = node.emit(relax.op.add(total, _looked_up(node, 4, 1)), "embedded")
    normalized = node.emit(real.normalize(Real(node.emit, total), [2], node.attribute("epsilon", 1e-12)), INSIDE)
    counts: Value = None
    if node.has(7):
        counts = node.emit(relax.op.sum(node.emit(relax.op.astype(node.expr(7), "int32"), "mask"), axis=[1]), "counts")
    return scaled(node, normalized, node.expr(5), node.expr(6)), counts, total


def _looked_up(node: Node, table: int, ids: int) -> relax.Var:
    node.require(node.dtype(ids) in ("int32", "int64"), f"has indices of {node.dtype(ids)}", node.name(ids))
    return node.emit(relax.op.take(node.expr(table), node.expr(ids), 0, mode="clip"), "looked_up")


def _require_left_out(node: Node, *inputs: tuple[int, str]) -> None:
    for place, name in inputs:
        if node.has(place):
            node.unsupported(f"takes {name}: keys and values of earlier calls are not kept", node.name(place))


def _heads(node: Node, x: relax.Expr, heads: int = 0) -> relax.Expr:
    """`[B, S, N]` -> `[B, heads, S, N / heads]`."""
    heads = heads or node.attribute("num_heads", 0)
    shape = shape_of(x)
    node.require(len(shape) == 3 and heads > 0 and shape[-1] % heads == 0, f"makes {heads} heads of {list(shape)}")
    split = node.emit(relax.op.reshape(x, (*shape[:2], heads, shape[2] // heads)), "split")
    return node.emit(relax.op.permute_dims(split, (0, 2, 1, 3)), "heads")


def _repeated(node: Node, x: relax.Expr, times: int) -> relax.Expr:
    """Each head several times over."""
    batch, heads, tokens, size = shape_of(x)
    one = node.emit(relax.op.reshape(x, (batch, heads, 1, tokens, size)), "shared")
    several = node.emit(relax.op.broadcast_to(one, (batch, heads, times, tokens, size)), "repeated")
    return node.emit(relax.op.reshape(several, (batch, heads * times, tokens, size)), "repeated")


def _scale(node: Node) -> float | None:
    return node.attribute("scale", 0.0) or None


def _attended(
    node: Node,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    added: Sequence[relax.Expr],
    scale: float | None,
) -> relax.Call:
    """softmax(scale * query * key' + what is `added`) * value, not bound yet."""
    turned = node.emit(relax.op.permute_dims(key, (0, 1, 3, 2)), "turned")
    scores = node.emit(ops.real_matmul(query, turned), "scores")
    made = Real(node.emit, scores)
    made.x = made.apply(relax.op.multiply, scores, 1 / math.sqrt(shape_of(query)[3]) if scale is None else scale)
    for each in added:
        made.x = made.apply(relax.op.add, made.x, each)
    weights = made(real.softmax(made, 3))
    if added:  # a query that sees no key gives zeros
        largest = made(relax.op.max(made.x, axis=[3], keepdims=True))
        weights = made.apply(relax.op.where, made.apply(relax.op.equal, largest, -math.inf), 0.0, weights)
    return ops.real_matmul(weights, value)


def _joined(node: Node, x: relax.Call) -> relax.Expr:
    """`[B, heads, S, size]`, not bound yet -> `[B, S, heads * size]`."""
    attended = node.emit(x, "attended")
    batch, heads, tokens, size = shape_of(attended)
    moved = node.emit(relax.op.permute_dims(attended, (0, 2, 1, 3)), "moved")
    return node.emit(relax.op.reshape(moved, (batch, tokens, heads * size)))


def _bias(node: Node, place: int) -> list[relax.Expr]:
    if not node.has(place):
        return []
    float32(node, place)
    return [node.expr(place)]


def _mask(node: Node, place: int, extents: tuple[int, int, int]) -> list[relax.Expr]:
    """What is added to the scores where a mask is 0: one of keys, `[B, L]`, or one for each query, `[B, S, L]`; or the
    number of keys that are there, `[B]`."""
    if not node.has(place):
        return []
    batch, tokens, length = extents
    shape, dtype = node.shape(place), node.dtype(place)
    if dtype not in ("int32", "int64", "bool"):
        node.unsupported(f"has a mask of {dtype}", node.name(place))
    if shape == (batch,) and dtype != "bool":
        counts = node.emit(relax.op.reshape(node.expr(place), (batch, 1, 1, 1)), "counts")
        row = node.literal(np.arange(length, dtype=dtype).reshape(1, 1, 1, length))
        there = node.emit(relax.op.less(row, counts), "there")
    elif shape in ((batch, length), (batch, tokens, length)):
        reshaped = (batch, 1, 1, length) if len(shape) == 2 else (batch, 1, tokens, length)
        there = node.emit(relax.op.reshape(node.expr(place), reshaped), "mask")
        if dtype != "bool":
            there = node.emit(relax.op.greater(there, node.literal(np.array(0, dtype))), "there")
    else:
        node.unsupported(f"has a mask of {list(shape)} for {tokens} queries and {length} keys", node.name(place))
    return [_hidden(node, there, node.attribute("mask_filter_value", _MASKED))]


def _hidden(node: Node, there: relax.Expr, low: float) -> relax.Expr:
    """`low` where nothing is, else 0."""
    nothing, hiding = (relax.const(np.array(value, np.float32)) for value in (0.0, low))
    return node.emit(relax.op.where(there, nothing, hiding), "hidden")


def _causal(node: Node, tokens: int, length: int, behind: int, low: float = _LOWEST) -> relax.Expr:
    """What hides later keys: a query sees those up to its own place and `behind` more."""
    if tokens * length > _LARGEST_MASK:
        node.unsupported(f"hides later keys of {tokens} by {length}")
    seen = np.arange(length)[np.newaxis] <= np.arange(tokens)[:, np.newaxis] + behind
    return _hidden(node, node.literal(seen), low)


ATTENTION: dict[str, tuple[Convert, tuple[int, int]]] = {
    "Attention": (onnx_attention, (3, 7)),
    "RotaryEmbedding": (rotary_embedding, (3, 4)),
    "com.microsoft.Attention": (attention, (3, 7)),
    "com.microsoft.EmbedLayerNormalization": (embed_layer_normalization, (7, 9)),
    "com.microsoft.MultiHeadAttention": (multi_head_attention, (1, 10)),
    "com.microsoft.QAttention": (quantized_attention, (5, 9)),
}
