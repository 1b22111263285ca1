"""Functions of one value, and softmax: QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax (com.microsoft)."""

from __future__ import annotations

import math

from tvm import relax

from service.compiler.importers.onnx.node import Node
from service.compiler.qnn import ops

# earlier operator sets apply softmax to the given axis and all axes after it, as if these were a single axis
_LAST_AXIS_SINCE = 13


def qlinear_sigmoid(node: Node) -> relax.Var:
    """Inputs: X, X_scale, X_zero_point, Y_scale, Y_zero_point."""
    return _unary(node, "logistic")


def qlinear_leaky_relu(node: Node) -> relax.Var:
    """Inputs: as for `qlinear_sigmoid`."""
    return _unary(node, "leaky_relu", alpha=node.attribute("alpha", 0.01))


def _unary(node: Node, function: str, **attributes: float) -> relax.Var:
    in_type, out_type = node.stored_types()
    return node.typed(node.emit(ops.unary(function, node.expr(0), in_type, out_type, **attributes)), out_type)


def qlinear_softmax(node: Node) -> relax.Var:
    """Inputs: as for `qlinear_sigmoid`. The attribute `opset` selects one of two meanings of `axis`."""
    shape = node.shape(0)
    node.require(bool(shape), "has a scalar input")
    recent = node.attribute("opset", 0) >= _LAST_AXIS_SINCE
    axis = node.axis(node.attribute("axis", -1), len(shape))
    in_type, out_type = node.stored_types()
    x = node.expr(0)
    if not recent:
        rows = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        soft = node.emit(ops.softmax(node.emit(relax.op.reshape(x, rows), "rows"), in_type, out_type), "softmax")
        return node.typed(node.emit(relax.op.reshape(soft, shape)), out_type)
    order = list(range(len(shape)))
    order[axis], order[-1] = order[-1], order[axis]
    moved = node.emit(relax.op.permute_dims(x, order), "rows")
    soft = node.emit(ops.softmax(moved, in_type, out_type), "softmax")
    return node.typed(node.emit(relax.op.permute_dims(soft, order)), out_type)
