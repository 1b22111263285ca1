"""Functions of one value: LOGISTIC, TANH, HARD_SWISH, LEAKY_RELU and similar operators."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops


def squashing(name: str) -> Callable[[Node], relax.Var]:
    """Returns the converter of LOGISTIC or TANH. For 16-bit values, the kernels write in steps of 1/32768
    (`SigmoidPrepare` and `TanhPrepare` in tflite/kernels/activations.cc).
    """

    def convert(node: Node) -> relax.Var:
        out_type = node.out_type()
        if out_type.storage == "int16" and out_type.scale != 1 / 32768:
            node.unsupported(f"writes {out_type}; its kernel writes scale 1/32768")
        return _unary(node, name)

    return convert


def function(name: str) -> Callable[[Node], relax.Var]:
    """Returns the converter of a builtin to the function `name` of `qnn.ops.unary`."""
    return lambda node: _unary(node, name)


def absolute(node: Node) -> relax.Expr:
    """Converts ABS of stored values or of integers."""
    return _unary(node, "abs") if node.is_quantized else node.emit(relax.op.abs(node.expr(0)))


def clamp(node: Node) -> relax.Var:
    """Converts RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1 to a function with a clamped output type."""
    return _unary(node, "relu", activation=node.operator.name)


def leaky_relu(node: Node) -> relax.Var:
    alpha = float(node.option("alpha"))  # type: ignore[arg-type]
    if not math.isfinite(alpha):
        node.unsupported(f"has alpha {alpha}, which is not finite")
    return _unary(node, "leaky_relu", alpha=alpha)


def gelu(node: Node) -> relax.Var:
    return _unary(node, "gelu", approximate=bool(node.option("approximate")))


def _unary(node: Node, name: str, activation: str = "NONE", **attrs: float | bool) -> relax.Var:
    in_type, out_type = node.stored_types(activation)
    return node.emit(ops.unary(name, node.expr(0), in_type, out_type, **attrs))
