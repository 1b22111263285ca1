"""RotaryEmbedding of ONNX (operator set 23) and of com.microsoft: rotates pairs of elements of each head by an angle
that depends on the token's position (Su et al. 2021).
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.qnn.graph import shape_of


def rotary_embedding(node: Node) -> Value:
    """Inputs: X, cos_cache, sin_cache, position_ids: `[B, heads, S, size]` or `[B, S, heads * size]`."""
    float32(node, 0, 1, 2)
    caches = [looked_up(node, position, node.expr(3)) if node.has(3) else node.expr(position) for position in (1, 2)]
    shape = node.shape(0)
    heads = node.attribute("num_heads", 0) if len(shape) == 3 else shape[1 % len(shape)]
    return _of_heads(node, heads, caches)


def microsoft(node: Node) -> Value:
    """Inputs: input, position_ids, cos_cache, sin_cache, as for `rotary_embedding`. position_ids are `[B, S]`; or
    `[1]`, the position of every sample's first token. Without num_heads, the size of a head is twice the number of
    angles.
    """
    float32(node, 0, 2, 3)
    if node.attribute("is_packed_batching", 0):
        node.unsupported("rotates sequences that are packed into one batch, which cannot be compiled")
    shape, angles, dtype = node.shape(0), node.shape(2), node.dtype(1)
    node.require(
        len(shape) in (3, 4) and len(angles) == 2 and angles[1] > 0,
        f"cannot rotate {list(shape)} by angles {list(angles)}",
    )
    node.require(dtype == "int64", f"has positions of {dtype}, not int64")
    tokens, positions = shape[1 if len(shape) == 3 else 2], node.expr(1)
    if node.shape(1) == (1,):
        steps = node.literal(np.arange(tokens).reshape(1, tokens))
        positions = node.emit(relax.op.add(node.emit(relax.op.reshape(positions, (1, 1)), "first"), steps), "places")
    node.require(
        shape_of(positions) in ((1, tokens), (shape[0], tokens)),
        f"has positions {list(shape_of(positions))}, which do not fit",
    )
    heads = shape[1] if len(shape) == 4 else node.attribute("num_heads", 0) or shape[2] // (2 * angles[1])
    return _of_heads(node, heads, [looked_up(node, position, positions) for position in (2, 3)])


def looked_up(node: Node, cache: int, positions: relax.Expr) -> relax.Expr:
    """Returns the rows of input `cache` for positions `[B, S]`, as `[B, S, angles]`."""
    return node.emit(relax.op.take(node.expr(cache), positions, 0, mode="clip"), "angles")


def _of_heads(node: Node, heads: int, caches: list[relax.Expr]) -> Value:
    shape, rank, x = node.shape(0), len(node.shape(0)), node.expr(0)
    node.require(
        (rank == 3 and heads > 0 and shape[-1] % heads == 0) or rank == 4,
        f"cannot rotate {list(shape)} in {heads} heads",
    )
    if rank == 3:
        x = node.emit(relax.op.reshape(x, (*shape[:2], heads, shape[2] // heads)), "heads")
    else:
        x = node.emit(relax.op.permute_dims(x, (0, 2, 1, 3)), "heads")
    whole = rotate(node, x, caches, node.attribute("rotary_embedding_dim", 0), node.attribute("interleaved", 0))
    if rank == 4:
        return node.emit(relax.op.permute_dims(whole, (0, 2, 1, 3)))
    return node.emit(relax.op.reshape(whole, shape))


def rotate(node: Node, x: relax.Expr, caches: list[relax.Expr], count: int, interleaved: int) -> relax.Expr:
    """Returns `[B, S, heads, size]` with the first `count` elements of each head rotated (0 means all elements). The
    cosines and sines of the angles are `[B, S, count / 2]`. The two elements of a pair are adjacent if `interleaved` is
    true; otherwise, one is in each half.
    """
    size = shape_of(x)[3]
    count = count or size
    node.require(count % 2 == 0 and count <= size, f"cannot rotate {count} of {size} elements")
    angles = []
    for cache in caches:
        rows = shape_of(cache)
        node.require(len(rows) == 3 and rows[-1] == count // 2, f"has angles {list(rows)}, which do not fit")
        angles.append(node.emit(relax.op.reshape(cache, (rows[0], rows[1], 1, rows[2])), "angles"))
    step, half = (2, 1) if interleaved else (1, count // 2)
    first, second = (
        node.emit(relax.op.strided_slice(x, [3], [start], [end], [step]), "part")
        for start, end in ((0, count if interleaved else half), (half, count))
    )
    products = [
        node.emit(relax.op.multiply(part, angle), "product")
        for part, angle in ((first, angles[0]), (second, angles[1]), (first, angles[1]), (second, angles[0]))
    ]
    parts = [
        node.emit(relax.op.subtract(products[0], products[1]), "turned"),
        node.emit(relax.op.add(products[2], products[3]), "turned"),
    ]
    if interleaved:
        each = [node.emit(relax.op.reshape(part, (*shape_of(part), 1)), "pair") for part in parts]
        both = node.emit(relax.op.concat(each, 4), "pairs")
        parts = [node.emit(relax.op.reshape(both, (*shape_of(x)[:3], count)), "pairs")]
    if count < size:
        parts.append(node.emit(relax.op.strided_slice(x, [3], [count], [size], [1]), "rest"))
    return node.emit(relax.op.concat(parts, 3), "whole") if len(parts) > 1 else parts[0]


ROTARY: dict[str, tuple[Convert, tuple[int, int]]] = {
    "RotaryEmbedding": (rotary_embedding, (3, 4)),
    "com.microsoft.RotaryEmbedding": (microsoft, (4, 4)),
}
