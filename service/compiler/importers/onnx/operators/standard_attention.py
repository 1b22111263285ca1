"""ONNX's own Attention (operator set 23)."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import attending
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.qnn.graph import shape_of

_ATTRIBUTES = frozenset(
    {
        *("is_causal", "kv_num_heads", "left_window_size", "q_num_heads", "qk_matmul_output_mode"),
        *("right_window_size", "scale", "softcap", "softmax_precision"),
    }
)
_PAST_KEY, _PAST_VALUE, _COUNTS = 4, 5, 6


def attention(node: Node) -> Value:
    """Inputs: Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen. Q, K and V are `[B, heads, S, size]`, or `[B,
    S, N]` with the numbers of heads as attributes. If there are fewer heads of keys and values than of queries, each
    serves several heads of queries.
    """
    for name in node.operator.attributes.keys() - _ATTRIBUTES:
        node.unsupported(f"has the attribute {shortened(name)}, which cannot be compiled")
    float32(node, 0, 1, 2)
    names = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    query, key, value = (
        x if len(shape_of(x)) == 4 else attending.heads_of(node, x, node.attribute(name, 0))
        for x, name in zip((node.expr(index) for index in range(3)), names, strict=True)
    )
    node.require(node.has(_PAST_KEY) == node.has(_PAST_VALUE), "has past keys without past values, or the reverse")
    key, value = (attending.with_past(node, x, past) for x, past in ((key, _PAST_KEY), (value, _PAST_VALUE)))
    heads = shape_of(query)[1]
    added = [*_mask(node, shape_of(key)[2]), *_places(node, query, key)]
    stages: dict[int, relax.Expr] = {}
    result = attending.attended(
        node,
        query,
        attending.repeated(node, key, heads),
        attending.repeated(node, value, heads),
        added,
        node.attribute("scale", 0.0) or None,
        node.attribute("softcap", 0.0),
        stages.__setitem__,
    )
    whole = attending.join_heads(node, result) if len(node.shape(0)) == 3 else node.emit(result)
    stage = node.attribute("qk_matmul_output_mode", 0)
    node.require(stage in stages, f"has the unknown qk_matmul_output_mode {stage}")
    return whole, key, value, stages[stage]


def _mask(node: Node, length: int) -> list[relax.Expr]:
    """Returns the addends for attn_mask. Keys for which the mask has no column are hidden."""
    if not node.has(3):
        return []
    mask, shape = node.expr(3), node.shape(3)
    node.require(
        bool(shape) and shape[-1] in (1, *range(length + 1)),
        f"has a mask {list(shape)}, which does not fit {length} keys",
    )
    if node.dtype(3) == "bool":
        mask = attending.hidden(node, mask, -math.inf)
    else:
        float32(node, 3)
    if 1 < shape[-1] < length:
        widths = [0] * (2 * len(shape) - 1) + [length - shape[-1]]
        mask = node.emit(relax.op.nn.pad(mask, widths, "constant", pad_value=-math.inf), "mask")
    return [mask]


def _places(node: Node, query: relax.Expr, key: relax.Expr) -> list[relax.Expr]:
    """Returns the addends that hide keys by position: keys after the query, outside of its window, or after the last
    valid key.

    If the number of keys is given (nonpad_kv_seqlen), the last query has the position of the last key. Otherwise, the
    first query has the position after the keys of earlier calls.
    """
    (batch, _, tokens, _), length = shape_of(query), shape_of(key)[2]
    left, right = (node.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    if node.attribute("is_causal", 0):
        right = 0 if right < 0 else min(right, 0)
    if not node.has(_COUNTS):
        past = node.shape(_PAST_KEY)[2] if node.has(_PAST_KEY) else 0
        if left < 0 and right < 0:
            return []
        there = attending.visible_keys(node, tokens, length, past, left, right)
        return [attending.hidden(node, node.literal(there), -math.inf)]
    node.require(
        node.shape(_COUNTS) == (batch,) and node.dtype(_COUNTS) == "int64", "has counts that are not [B] int64"
    )
    counts = node.emit(relax.op.reshape(node.expr(_COUNTS), (batch, 1, 1, 1)), "counts")
    keys = np.arange(length).reshape(1, 1, 1, length)
    seen = [node.emit(relax.op.less(node.literal(keys), counts), "there")]
    # key <= query + count - tokens + right, and similarly on the left
    ahead = keys - np.arange(tokens).reshape(1, 1, tokens, 1) + tokens
    if right >= 0:
        seen.append(node.emit(relax.op.less_equal(node.literal(ahead - right), counts), "before"))
    if left >= 0:
        seen.append(node.emit(relax.op.greater_equal(node.literal(ahead + left), counts), "after"))
    return [attending.hidden(node, each, -math.inf) for each in seen]


STANDARD: dict[str, tuple[Convert, tuple[int, int]]] = {
    "Attention": (attention, (3, 7)),
}
