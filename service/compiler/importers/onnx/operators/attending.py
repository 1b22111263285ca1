"""Functions that the attention operators share. Queries, keys and values are `[batch, heads, tokens, size]`; everything
is float32, as in contrib_ops/cpu/bert/attention_cpu_base.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

LOWEST = float(np.finfo(np.float32).min)
_LARGEST_MASK = 1 << 24


def heads_of(node: Node, x: relax.Expr, heads: int = 0) -> relax.Expr:
    """Splits `[B, S, N]` into heads: `[B, heads, S, N / heads]`."""
    heads = heads or node.attribute("num_heads", 0)
    shape = shape_of(x)
    node.require(
        len(shape) == 3 and heads > 0 and shape[-1] % heads == 0, f"cannot split {list(shape)} into {heads} heads"
    )
    split = node.emit(relax.op.reshape(x, (*shape[:2], heads, shape[2] // heads)), "split")
    return node.emit(relax.op.permute_dims(split, (0, 2, 1, 3)), "heads")


def repeated(node: Node, x: relax.Expr, heads: int) -> relax.Expr:
    """Repeats the heads so that there are `heads` of them."""
    batch, groups, tokens, size = shape_of(x)
    node.require(heads % groups == 0, f"has {heads} heads of queries, which {groups} heads of keys do not divide")
    if groups == heads:
        return x
    one = node.emit(relax.op.reshape(x, (batch, groups, 1, tokens, size)), "shared")
    several = node.emit(relax.op.broadcast_to(one, (batch, groups, heads // groups, tokens, size)), "repeated")
    return node.emit(relax.op.reshape(several, (batch, heads, tokens, size)), "repeated")


def with_past(node: Node, x: relax.Expr, past: int) -> relax.Expr:
    """Returns keys or values, preceded by those of earlier calls if input `past` is given."""
    if not node.has(past):
        return x
    float32(node, past)
    (batch, heads, _, size), given = shape_of(x), node.shape(past)
    fits = len(given) == 4 and (given[0], given[1], given[3]) == (batch, heads, size)
    node.require(fits, f"has past keys or values {list(given)}, which do not fit {list(shape_of(x))}")
    return node.emit(relax.op.concat([node.expr(past), x], 2), "present")


def attended(
    node: Node,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    added: Sequence[relax.Expr],
    scale: float | None,
    softcap: float = 0.0,
    watch: Callable[[int, relax.Expr], None] = lambda stage, scores: None,
) -> relax.Call:
    """Returns softmax(scale * query * key' + the sum of `added`) * value, as a call that is not bound yet.

    Args:
        scale: the factor of the scores, or None for 1 / sqrt(size).
        softcap: a bound of the scores, which tanh applies before anything is added; 0 for none.
        watch: called with the scores after each stage: 0, the product; 1, bounded; 2, with everything added; 3, after
            the softmax.
    """
    turned = node.emit(relax.op.permute_dims(key, (0, 1, 3, 2)), "turned")
    scores = node.emit(ops.real_matmul(query, turned), "scores")
    made = Real(node.emit, scores)
    made.x = made.apply(relax.op.multiply, scores, 1 / math.sqrt(shape_of(query)[3]) if scale is None else scale)
    watch(0, made.x)
    if softcap:
        node.require(softcap > 0 and math.isfinite(softcap), f"has the invalid softcap {softcap}")
        ratio = made.apply(relax.op.divide, made.x, softcap)
        made.x = made.apply(relax.op.multiply, made(ops.real_function("tanh", ratio)), softcap)
    watch(1, made.x)
    for each in added:
        made.x = made.apply(relax.op.add, made.x, each)
    watch(2, made.x)
    weights = made(real.softmax(made, 3))
    if added:  # the result of a query that can read no key is zero
        largest = made(relax.op.max(made.x, axis=[3], keepdims=True))
        weights = made.apply(relax.op.where, made.apply(relax.op.equal, largest, -math.inf), 0.0, weights)
    watch(3, weights)
    return ops.real_matmul(weights, value)


def join_heads(node: Node, x: relax.Call) -> relax.Expr:
    """Joins the heads `[B, heads, S, size]` to `[B, S, heads * size]`. The result is not bound yet."""
    whole = node.emit(x, "attended")
    batch, heads, tokens, size = shape_of(whole)
    moved = node.emit(relax.op.permute_dims(whole, (0, 2, 1, 3)), "moved")
    return node.emit(relax.op.reshape(moved, (batch, tokens, heads * size)))


def bias(node: Node, index: int) -> list[relax.Expr]:
    """Returns the bias that an input contains, as an addend of the scores."""
    if not node.has(index):
        return []
    float32(node, index)
    return [node.expr(index)]


def hidden(node: Node, there: relax.Expr, low: float) -> relax.Expr:
    """Returns an addend of the scores: 0 where `there` is true, and `low` elsewhere."""
    nothing, hiding = (relax.const(np.array(value, np.float32)) for value in (0.0, low))
    return node.emit(relax.op.where(there, nothing, hiding), "hidden")


def visible_keys(node: Node, tokens: int, length: int, behind: int, left: int = -1, right: int = 0) -> Array:
    """Returns the keys that each query can read, bool `[tokens, length]`. A query reads keys from `left` before its own
    position to `right` after it; a negative number means no limit. The first query has the position `behind`.
    """
    if tokens * length > _LARGEST_MASK:
        node.unsupported(f"has a mask of {tokens} queries by {length} keys, which is too large")
    own = np.arange(tokens)[:, np.newaxis] + behind
    keys = np.arange(length)[np.newaxis]
    result = np.ones((tokens, length), bool)
    if left >= 0:
        result &= keys >= own - left
    if right >= 0:
        result &= keys <= own + right
    return result


def causal(node: Node, tokens: int, length: int, behind: int, low: float = LOWEST) -> relax.Expr:
    """Returns the addend that hides later keys. A query reads the first `behind` keys, and the later keys up to its own
    position.
    """
    return hidden(node, node.literal(visible_keys(node, tokens, length, behind)), low)
