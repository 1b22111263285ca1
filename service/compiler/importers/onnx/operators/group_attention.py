"""GroupQueryAttention (com.microsoft), which ONNX Runtime's generative models use. It is causal, has fewer heads of
keys and values than of queries, and receives the keys and values of earlier calls
(contrib_ops/cpu/bert/gqa_attention_base.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import attending, rotary
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.qnn.graph import shape_of

_PAST_KEY, _PAST_VALUE, _LAST, _TOTAL, _COS, _SIN, _PLACES, _BIAS = range(3, 11)
_PADDING = 1  # the position of padding after a sample's last token


@dataclass(frozen=True)
class _Cache:
    """The positions of a call's tokens, which follow the tokens of earlier calls.

    Attributes:
        size: the number of keys and values that the call returns.
        given: the number of keys and values that the call receives.
        before: int64 `[B, 1]`, how many of the received keys and values belong to each sample.
        all_before: the number in `before` if it is known and the same for all samples; otherwise None.
        last: int64 `[B, 1]`, the position of each sample's last token.
    """

    size: int
    given: int
    before: relax.Expr
    all_before: int | None
    last: relax.Expr


def group_query_attention(node: Node) -> Value:
    """Inputs: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache,
    position_ids, attention_bias: `[B, S, N]`, or all three packed into the first.
    """
    if any(node.has(index) for index in range(_BIAS + 1, node.input_count)) or any(node.operator.outputs[3:]):
        node.unsupported(
            "has a sink, normalized heads or quantized keys, or returns its scores, which cannot be compiled"
        )
    if node.attribute("smooth_softmax", 0) == 1 or not node.attribute("causal", 1):
        node.unsupported("has a smooth softmax or is not causal, which cannot be compiled")
    query, key, value = _operands(node)
    cache = _cache(node, shape_of(query)[0], shape_of(query)[1])
    if node.attribute("do_rotary", 0):
        query, key = _rotated(node, (query, key), cache)
    query, key, value = (node.emit(relax.op.permute_dims(x, (0, 2, 1, 3)), "heads") for x in (query, key, value))
    key, value = _cached_rows(node, key, _PAST_KEY, cache), _cached_rows(node, value, _PAST_VALUE, cache)
    heads = shape_of(query)[1]
    added = [_mask_addend(node, shape_of(query)[2], cache), *attending.bias(node, _BIAS)]
    repeated = [attending.repeated(node, x, heads) for x in (key, value)]
    scale = node.attribute("scale", 0.0) or None
    made = attending.attended(node, query, repeated[0], repeated[1], added, scale, node.attribute("softcap", 0.0))
    return attending.join_heads(node, made), key, value


def _operands(node: Node) -> list[relax.Expr]:
    """Returns queries, keys and values `[B, S, heads, size]`."""
    heads, groups = node.attribute("num_heads", 0), node.attribute("kv_num_heads", 0)
    node.require(
        heads > 0 and groups > 0 and heads % groups == 0, f"has {heads} heads of queries, but {groups} of keys"
    )
    node.require(node.has(1) == node.has(2), "has keys without values, or the reverse")
    shape = node.shape(0)
    counts = (heads, groups, groups)
    float32(node, *((0, 1, 2) if node.has(1) else (0,)))
    if node.has(1):
        shapes = [node.shape(index) for index in range(3)]
        size = shape[-1] // heads if len(shape) == 3 else 0
        fits = all(each == (*shape[:2], count * size) for each, count in zip(shapes, counts, strict=True))
        node.require(
            size > 0 and fits, f"cannot split {[list(each) for each in shapes]} into {heads} and {groups} heads"
        )
        parts = [node.expr(index) for index in range(3)]
    else:
        size = shape[-1] // sum(counts) if len(shape) == 3 else 0
        node.require(
            size > 0 and shape[-1] == sum(counts) * size, f"cannot split {list(shape)} into {sum(counts)} heads"
        )
        ends = np.cumsum([0, *counts]) * size
        parts = [
            node.emit(relax.op.strided_slice(node.expr(0), [2], [int(start)], [int(end)], [1]), "part")
            for start, end in pairwise(ends)
        ]
    return [
        node.emit(relax.op.reshape(part, (*shape[:2], count, size)), "split")
        for part, count in zip(parts, counts, strict=True)
    ]


def _cache(node: Node, batch: int, tokens: int) -> _Cache:
    node.require(node.has(_PAST_KEY) == node.has(_PAST_VALUE), "has past keys without past values, or the reverse")
    given = node.shape(_PAST_KEY)[2] if node.has(_PAST_KEY) and len(node.shape(_PAST_KEY)) == 4 else 0
    total = node.whole(_TOTAL)
    size = max(given, total)
    node.require(
        0 < tokens <= total <= given + tokens,
        f"has {total} tokens in total and {tokens} in this call, which does not fit",
    )
    node.require(node.dtype(_LAST) == "int32" and node.shape(_LAST) in ((batch,), (batch, 1)), "has invalid lengths")
    known = node.known_value(_LAST)
    if known is not None:
        node.require(
            bool(((known >= tokens - 1) & (known < size)).all()) or tokens == total, "has lengths that are out of range"
        )
    last = node.emit(
        relax.op.astype(node.emit(relax.op.reshape(node.expr(_LAST), (batch, 1)), "last"), "int64"), "last"
    )
    if tokens == total:  # the first call
        return _Cache(size, given, node.literal(np.zeros((batch, 1), np.int64)), 0, last)
    counted = node.emit(relax.op.subtract(last, node.literal(np.array(tokens - 1, np.int64))), "before")
    low = node.emit(relax.op.maximum(counted, node.literal(np.array(0, np.int64))), "before")
    before = node.emit(relax.op.minimum(low, node.literal(np.array(min(given, size - tokens), np.int64))), "before")
    same = int(known.flat[0]) - (tokens - 1) if known is not None and len(set(known.flat)) == 1 else None
    return _Cache(size, given, before, same, last)


def _rotated(node: Node, operands: tuple[relax.Expr, relax.Expr], cache: _Cache) -> list[relax.Expr]:
    """Rotates queries and keys by the angles of their positions."""
    float32(node, _COS, _SIN)
    batch, tokens = shape_of(operands[0])[:2]
    if node.has(_PLACES):
        node.require(node.dtype(_PLACES) == "int64" and node.shape(_PLACES) == (batch, tokens), "has invalid positions")
        positions = node.expr(_PLACES)
    else:
        steps = node.literal(np.arange(tokens, dtype=np.int64).reshape(1, tokens))
        counted = node.emit(relax.op.add(cache.before, steps), "places")
        there = node.emit(relax.op.less_equal(counted, cache.last), "there")
        positions = node.emit(relax.op.where(there, counted, node.literal(np.array(_PADDING, np.int64))), "places")
    angles = [rotary.looked_up(node, cache_place, positions) for cache_place in (_COS, _SIN)]
    count = 2 * shape_of(angles[0])[-1]
    return [rotary.rotate(node, x, angles, count, node.attribute("rotary_interleaved", 0)) for x in operands]


def _cached_rows(node: Node, x: relax.Expr, past: int, cache: _Cache) -> relax.Expr:
    """Returns `cache.size` rows: the sample's keys or values of earlier calls, then its keys or values of this call,
    then zeros.
    """
    batch, heads, tokens, size = shape_of(x)
    parts = [x]
    if node.has(past):
        float32(node, past)
        node.require(
            node.shape(past) == (batch, heads, cache.given, size), f"has invalid past {list(node.shape(past))}"
        )
    if cache.all_before is not None:
        before = cache.all_before
        if before:
            parts = [node.emit(relax.op.strided_slice(node.expr(past), [2], [0], [before], [1]), "past"), x]
        left = cache.size - before - tokens
        if left:
            parts.append(node.literal(np.zeros((batch, heads, left, size), np.float32)))
        return x if len(parts) == 1 else node.emit(relax.op.concat(parts, 2), "kept")
    nothing = node.literal(np.zeros((batch, heads, 1, size), np.float32))
    rows = node.emit(relax.op.concat([node.expr(past), x, nothing], 2), "rows")
    positions = node.literal(np.arange(cache.size, dtype=np.int64).reshape(1, cache.size))
    own = node.emit(relax.op.subtract(positions, cache.before), "own")
    of_call = node.emit(relax.op.less(own, node.literal(np.array(tokens, np.int64))), "of_call")
    shift = node.literal(np.array(cache.given, np.int64))
    behind = node.literal(np.array(cache.given + tokens, np.int64))
    new = node.emit(relax.op.where(of_call, node.emit(relax.op.add(own, shift), "new"), behind), "new")
    earlier = node.emit(relax.op.less(positions, cache.before), "earlier")
    taken = node.emit(relax.op.where(earlier, positions, new), "taken")
    column = node.emit(relax.op.reshape(taken, (batch, 1, cache.size, 1)), "taken")
    everywhere = node.emit(relax.op.broadcast_to(column, (batch, heads, cache.size, size)), "taken")
    return node.emit(relax.op.gather_elements(rows, everywhere, 2), "kept")


def _mask_addend(node: Node, tokens: int, cache: _Cache) -> relax.Expr:
    """Returns the addend of the scores: -inf for keys after the query and for keys before its window, otherwise 0."""
    window = node.attribute("local_window_size", -1)
    keys = np.arange(cache.size).reshape(1, 1, 1, cache.size)
    ahead = keys - np.arange(tokens).reshape(1, 1, tokens, 1)
    before = node.emit(relax.op.reshape(cache.before, (shape_of(cache.before)[0], 1, 1, 1)), "before")
    there = node.emit(relax.op.less_equal(node.literal(ahead), before), "there")
    if window > 0:
        inside = node.emit(relax.op.greater(node.literal(ahead + window), before), "inside")
        there = node.emit(relax.op.logical_and(there, inside), "there")
    return attending.hidden(node, there, -np.inf)


GROUPED: dict[str, tuple[Convert, tuple[int, int]]] = {
    "com.microsoft.GroupQueryAttention": (group_query_attention, (7, 16)),
}
