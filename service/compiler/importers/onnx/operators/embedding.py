"""EmbedLayerNormalization and QEmbedLayerNormalization (com.microsoft), the first operator of a BERT model after ONNX
Runtime's optimizer.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.normalizing import scaled
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.ops.real import SEQUENTIAL


def embed_layer_normalization(node: Node) -> Value:
    """Inputs: input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta, mask,
    position_ids. Returns the normalized sum of up to three embeddings, and the number of unmasked tokens of each
    sample.
    """
    float32(node, 2, 3, 5, 6)
    tokens = node.shape(0)[1]
    total = _looked_up(node, 2, 0)
    if node.has(8):
        positions = _looked_up(node, 3, 8)
    else:
        node.require(tokens <= node.shape(3)[0], f"has {tokens} tokens, but only {node.shape(3)[0]} positions")
        positions = node.emit(relax.op.strided_slice(node.expr(3), [0], [0], [tokens], [1]), "positions")
    total = node.emit(relax.op.add(total, positions), "placed")
    if node.has(4) and node.has(1):
        total = node.emit(relax.op.add(total, _looked_up(node, 4, 1)), "embedded")
    normalized = node.emit(real.normalize(Real(node.emit, total), [2], node.attribute("epsilon", 1e-12)), INSIDE)
    counts: Value = None
    if node.has(7):
        counts = node.emit(relax.op.sum(node.emit(relax.op.astype(node.expr(7), "int32"), "mask"), axis=[1]), "counts")
    return scaled(node, normalized, node.expr(5), node.expr(6)), counts, total


def quantized_embed_layer_normalization(node: Node) -> Value:
    """Inputs: input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta, mask; then
    the scale of each of the five tables, and their zero points. Returns the normalized sum of up to three embeddings,
    and the number of unmasked tokens of each sample (contrib_ops/cpu/quantization/qembed_layer_norm.cc).
    """
    batch, tokens = node.shape(0)
    types = {index: node.quantized(index, index + 6, index + 11) for index in range(2, 7) if node.has(index)}
    node.require(tokens <= node.shape(3)[0], f"has {tokens} tokens, but only {node.shape(3)[0]} positions")

    def real_of(index: int, stored: relax.Expr) -> relax.Var:
        return node.emit(ops.dequantize(stored, types[index]), "real")

    places = node.emit(relax.op.strided_slice(node.expr(3), [0], [0], [tokens], [1]), "positions")
    total = node.emit(relax.op.add(real_of(2, _looked_up(node, 2, 0)), real_of(3, places)), "placed")
    if node.has(1):
        total = node.emit(relax.op.add(total, real_of(4, _looked_up(node, 4, 1))), "embedded")
    made, width = Real(node.emit, total), float(node.shape(2)[1])

    def mean_of(x: relax.Expr) -> relax.Expr:
        return made.apply(relax.op.divide, made(ops.real_sum(x, axes=[2], order=SEQUENTIAL)), width)

    moved = made.apply(relax.op.subtract, total, mean_of(total))
    variance = mean_of(made.apply(relax.op.multiply, moved, moved))
    epsilon = node.attribute("epsilon", 1e-12)
    root = made.apply(relax.op.sqrt, made.apply(relax.op.add, variance, epsilon))
    normalized = made.apply(relax.op.divide, moved, root)
    counts: Value = np.zeros(batch, np.int32)
    if node.has(7):
        is_one = node.emit(relax.op.equal(node.expr(7), node.literal(np.array(1, node.dtype(7)))), "mask")
        counts = node.emit(relax.op.sum(node.emit(relax.op.astype(is_one, "int32"), "mask"), axis=[1]), "counts")
    factor, bias = (real_of(index, node.expr(index)) for index in (5, 6))
    return scaled(node, normalized, factor, bias), counts


def _looked_up(node: Node, table: int, ids: int) -> relax.Var:
    node.require(node.dtype(ids) in ("int32", "int64"), f"has indices of {node.dtype(ids)}", node.name(ids))
    return node.emit(relax.op.take(node.expr(table), node.expr(ids), 0, mode="clip"), "looked_up")


EMBEDDING: dict[str, tuple[Convert, tuple[int, int]]] = {
    "com.microsoft.EmbedLayerNormalization": (embed_layer_normalization, (7, 9)),
    "com.microsoft.QEmbedLayerNormalization": (quantized_embed_layer_normalization, (18, 18)),
}
