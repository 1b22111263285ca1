"""FusedConv and FusedGemm (com.microsoft): a layer of real values with its activation. ONNX Runtime's optimizer creates
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tvm import relax

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.derived import derived
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import convolution, elementwise, matrix, real
from service.compiler.importers.onnx.operators.activations import ACTIVATIONS
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.qnn.graph import shape_of

# Activation -> its converter, and the names of its parameters.
_ACTIVATIONS: dict[str, tuple[Convert, tuple[str, ...]]] = {
    "Clip": (elementwise.clip, ("min", "max")),
    "HardSigmoid": (real.hard_sigmoid, ("alpha", "beta")),
    "LeakyRelu": (real.leaky_relu, ("alpha",)),
    "Relu": (elementwise.relu, ()),
    "Sigmoid": (ACTIVATIONS["Sigmoid"][0], ()),
    "Tanh": (ACTIVATIONS["Tanh"][0], ()),
}


def fused_conv(node: Node) -> Value:
    """Inputs: X, W, B, Z. Computes a convolution, adds Z and then the bias (`MlasConv`), and applies an activation."""
    operator = node.operator
    added = node.has(3)
    taken = operator.inputs[: 2 if added else 3]
    sums = convolution.conv(Node(node.state, replace(operator, op_type="Conv", inputs=taken)))
    if added:
        float32(node, 3)
        node.require(node.shape(3) == shape_of(sums), f"cannot add {list(node.shape(3))} to {list(shape_of(sums))}")
        sums = node.emit(relax.op.add(sums, node.expr(3)), "added")
        if node.has(2):
            float32(node, 2)
            filters = shape_of(sums)[1]
            node.require(node.shape(2) == (filters,), f"has a bias {list(node.shape(2))} for {filters} filters")
            rows = node.emit(relax.op.reshape(node.expr(2), (filters, *(1,) * (len(shape_of(sums)) - 2))), "bias")
            sums = node.emit(relax.op.add(sums, rows), "biased")
    return _activated(node, sums, node.attribute("activation_params", ()))


def fused_gemm(node: Node) -> Value:
    """Inputs: those of Gemm. Computes a Gemm and applies an activation."""
    product = matrix.gemm(Node(node.state, replace(node.operator, op_type="Gemm")))
    given = [node.attribute(f"activation_{name}", 0.0) for name in ("alpha", "beta")]
    _, names = _ACTIVATIONS.get(node.attribute("activation", ""), (None, ()))
    return _activated(node, product, tuple(given[: len(names)]))


def _activated(node: Node, x: relax.Expr, parameters: tuple[Any, ...]) -> Value:
    name = node.attribute("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        node.unsupported(f"has the activation {shortened(name)}; {', '.join(_ACTIVATIONS)} can be compiled")
    convert, names = _ACTIVATIONS[name]
    node.require(len(parameters) == len(names), f"has {len(parameters)} parameters for {name}, not {len(names)}")
    given: Mapping[str, Any] = dict(zip(names, parameters, strict=True))
    return convert(derived(node, {0: x}, given, op_type=name, count=1))


FUSED: dict[str, tuple[Convert, tuple[int, int]]] = {
    "com.microsoft.FusedConv": (fused_conv, (2, 4)),
    "com.microsoft.FusedGemm": (fused_gemm, (2, 3)),
}
