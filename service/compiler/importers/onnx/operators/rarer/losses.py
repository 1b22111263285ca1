"""Losses, as exported training graphs have them: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.real import Real
from service.compiler.qnn.graph import shape_of


def negative_log_likelihood_loss(node: Node) -> Value:
    """Inputs: input, target, weight: `[N, C, …]` float32 logarithms of probabilities, `[N, …]` int32 or int64 classes,
    and `[C]` float32.
    """
    float32(node)
    return _loss(node, node.expr(0))


def softmax_cross_entropy_loss(node: Node) -> tuple[Value, ...]:
    """Inputs: scores, labels, weights, as for `negative_log_likelihood_loss`, but the first are not normalized. The
    second output contains the logarithms of the probabilities.
    """
    float32(node)
    logarithms = node.emit(real.softmax(Real(node.emit, node.expr(0)), 1, logarithm=True), "logarithms")
    return _loss(node, logarithms), logarithms


def _loss(node: Node, logarithms: relax.Expr) -> relax.Expr:
    shape, wanted, made = node.shape(0), node.shape(1), Real(node.emit, logarithms)
    node.require(len(shape) >= 2 and wanted == (shape[0], *shape[2:]), f"has {list(wanted)} classes of {list(shape)}")
    node.require(node.dtype(1) in ("int32", "int64"), f"has classes of {node.dtype(1)}, not int32 or int64")
    reduction = node.attribute("reduction", "mean")
    node.require(reduction in ("none", "sum", "mean"), f"has the unknown reduction {reduction[:16]}")
    classes = node.emit(relax.op.astype(node.expr(1), "int64"), "classes")
    at = node.emit(relax.op.reshape(classes, (shape[0], 1, *shape[2:])), "at")
    picked = node.emit(relax.op.gather_elements(logarithms, _inside(node, at, shape[1]), 1), "picked")
    losses = made.apply(relax.op.negative, made(relax.op.reshape(picked, wanted)))
    weights = _weights(node, classes, made)
    if weights is not None:
        losses = made.apply(relax.op.multiply, losses, weights)
    if reduction == "none":
        return node.emit(losses)
    total = made(made.total(losses, range(len(wanted)), keepdims=False))
    if reduction == "sum":
        return node.emit(total)
    if weights is None:
        return node.emit(made.call(relax.op.divide, total, float(math.prod(wanted))))
    return node.emit(relax.op.divide(total, made(made.total(weights, range(len(wanted)), keepdims=False))))


def _weights(node: Node, classes: relax.Expr, made: Real) -> relax.Expr | None:
    """Returns the weight of each class: that of the third input, and 0 for the class `ignore_index`. None if all
    weights are 1.
    """
    weights: relax.Expr | None = None
    if node.has(2):
        float32(node, 2)
        node.require(node.shape(2) == node.shape(0)[1:2], f"has {list(node.shape(2))} weights")
        inside = _inside(node, classes, node.shape(0)[1])
        weights = node.emit(relax.op.take(node.expr(2), inside, 0, mode="clip"), "weights")
    if "ignore_index" not in node.operator.attributes:
        return weights
    ignored = node.literal(np.array(node.attribute("ignore_index", 0), np.int64))
    is_ignored = node.emit(relax.op.equal(classes, ignored), "ignored")
    ones = relax.const(np.ones(shape_of(classes), np.float32)) if weights is None else weights
    return made.apply(relax.op.where, is_ignored, 0.0, ones)


def _inside(node: Node, classes: relax.Expr, count: int) -> relax.Expr:
    """Returns the classes, clamped to those that exist, so that nothing outside of a tensor is read."""
    low = node.emit(relax.op.maximum(classes, node.literal(np.array(0, np.int64))), "low")
    return node.emit(relax.op.minimum(low, node.literal(np.array(count - 1, np.int64))), "inside")


LOSSES: dict[str, tuple[Callable[[Node], Value | tuple[Value, ...]], tuple[int, int]]] = {
    "NegativeLogLikelihoodLoss": (negative_log_likelihood_loss, (2, 3)),
    "SoftmaxCrossEntropyLoss": (softmax_cross_entropy_loss, (2, 3)),
}
