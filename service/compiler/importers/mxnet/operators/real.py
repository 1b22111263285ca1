"""Operators that stay in float between and after MXNet's quantized layers.

ReLU, clip and sum equal MXNet's bit for bit. Functions and softmax differ from MXNet's by at most a few units in the
last place, as for every other format (`importers/real.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.mxnet.node import Node, Tensor, Value
from service.compiler.importers.real import Real

_ACTIVATIONS: dict[str, real.Function] = {
    "relu": real.of_relax(relax.op.nn.relu),
    "sigmoid": real.logistic,
    "tanh": real.of_float32("tanh"),
}


def function(of: real.Function) -> Callable[[Node], list[Value]]:
    """Returns a rule for a function of each element."""

    def convert(node: Node) -> list[Value]:
        node.count(1)
        return [node.result(node.emit(of(Real(node.emit, node.tensor(0, "float32").expr))))]

    return convert


def activation(node: Node) -> list[Value]:
    """`Activation` (src/operator/nn/activation-inl.h)."""
    kind = node.attributes.text("act_type", "")
    if kind not in _ACTIVATIONS:
        node.unsupported(f"has the act_type {kind!a:.20}; {', '.join(_ACTIVATIONS)} can be compiled")
    return function(_ACTIVATIONS[kind])(node)


def clip(node: Node) -> list[Value]:
    """`clip` (src/operator/tensor/matrix_op-inl.h)."""
    node.count(1)
    x: relax.Expr = node.tensor(0, "float32").expr
    for name, bound in (("a_min", relax.op.maximum), ("a_max", relax.op.minimum)):
        limit = node.attributes.real(name)
        if limit is None:
            node.unsupported(f"has no {name}")
        x = node.emit(bound(x, relax.const(limit, "float32")), name)
    return [node.result(x)]


def add(node: Node) -> list[Value]:
    """`elemwise_add`. In older files, it is called `_plus`."""
    node.count(2)
    a, b = (node.tensor(index, "float32") for index in range(2))
    node.require(a.shape == b.shape, f"adds tensors of different shapes, {list(a.shape)} and {list(b.shape)}")
    return [node.result(node.emit(relax.op.add(a.expr, b.expr)))]


def softmax(node: Node) -> list[Value]:
    """`softmax` (src/operator/nn/softmax-inl.h): divides the elements by the temperature first."""
    node.count(1)
    x, temperature = node.tensor(0, "float32"), node.attributes.real("temperature")
    if node.attributes.flag("use_length"):
        node.unsupported("uses the length of each row (use_length), which cannot be compiled")
    if temperature not in (None, 1.0):
        node.unsupported(f"has the temperature {temperature}; only 1 can be compiled")
    rank, axis = len(x.shape), node.attributes.integer("axis", -1, least=-8)
    node.require(-rank <= axis < rank, f"has axis {axis}, but its input has {rank} dimensions")
    return [_softmax(node, x, axis % rank)]


def softmax_output(node: Node) -> list[Value]:
    """`SoftmaxOutput` (src/operator/softmax_output-inl.h). Its labels are used in training only."""
    x = node.tensor(0, "float32")
    if node.attributes.flag("multi_output"):
        node.require(len(x.shape) > 1, "has multi_output, but its input has only one dimension")
        return [_softmax(node, x, 1)]
    if node.attributes.flag("preserve_shape"):
        return [_softmax(node, x, len(x.shape) - 1)]
    return [_of_rows(node, x)]


def softmax_activation(node: Node) -> list[Value]:
    """`SoftmaxActivation` (src/operator/nn/softmax_activation-inl.h)."""
    node.count(1)
    x, mode = node.tensor(0, "float32"), node.attributes.text("mode", "instance")
    if mode == "channel":
        node.require(len(x.shape) > 2, f"has the mode channel, but its input {list(x.shape)} has no channels")
        return [_softmax(node, x, 1)]
    if mode != "instance":
        node.unsupported(f"has the mode {mode!a:.20}; only instance and channel can be compiled")
    return [_of_rows(node, x)]


def _of_rows(node: Node, x: Tensor) -> Tensor:
    """Computes the softmax over all axes except the first, as if they were one axis."""
    node.require(len(x.shape) > 0, "has a scalar as its input")
    flat = (x.shape[0], math.prod(x.shape[1:]))
    if flat == x.shape:
        return _softmax(node, x, 1)
    rows = node.result(node.emit(relax.op.reshape(x.expr, flat), "rows"))
    return node.result(node.emit(relax.op.reshape(_softmax(node, rows, 1, "of_rows").expr, x.shape)))


def _softmax(node: Node, x: Tensor, axis: int, part: str = "") -> Tensor:
    return node.result(node.emit(real.softmax(Real(node.emit, x.expr), axis), part))


RELU = _ACTIVATIONS["relu"]
RULES: dict[str, Callable[[Node], list[Value]]] = {
    "Activation": activation,
    "SoftmaxActivation": softmax_activation,
    "SoftmaxOutput": softmax_output,
    "_Plus": add,
    "_plus": add,
    "clip": clip,
    "elemwise_add": add,
    "relu": function(RELU),
    "sigmoid": function(_ACTIVATIONS["sigmoid"]),
    "softmax": softmax,
    "tanh": function(_ACTIVATIONS["tanh"]),
}
