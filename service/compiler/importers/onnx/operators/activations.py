"""Functions of each float32 value (`importers/real.py`).

The results of functions that MLAS implements equal ONNX Runtime's bit for bit. Other functions are computed in float64
and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32, function
from service.compiler.importers.real import Real, Wide
from service.compiler.qnn import ops

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # float32 numbers


def _of(shared: real.Function) -> Convert:
    return function(lambda _node, made: shared(made))


def _wide(of: Callable[[Node, Wide], relax.Expr]) -> Convert:
    return function(lambda node, made: real.in_float64(lambda wide: of(node, wide))(made))


def gelu(node: Node) -> Value:
    """Converts Gelu and com.microsoft's variants of it. BiasGelu and FastGelu add their second input first, in
    float32.
    """
    float32(node, *range(node.input_count))
    approximate = node.attribute("approximate", "none")
    node.require(approximate in ("none", "tanh"), f"has the unknown approximation {approximate}")
    fast = approximate == "tanh" or node.operator.op_type == "com.microsoft.FastGelu"
    x = node.emit(relax.op.add(node.expr(0), node.expr(1)), "biased") if node.has(1) else node.expr(0)
    return node.emit(real.gelu(Real(node.emit, x), approximate=fast))


def _logistic_gate(node: Node, made: Real, default: float) -> relax.Call:
    """Returns x * logistic(alpha * x), for QuickGelu (com.microsoft) and Swish."""
    alpha = node.attribute("alpha", default)
    scaled = made.x if alpha == 1.0 else made.apply(relax.op.multiply, made.x, alpha)
    return made.call(relax.op.multiply, made.x, made(ops.real_function("logistic", scaled)))


def _softplus(_: Node, wide: Wide) -> relax.Expr:
    """Returns log(1 + exp(x)), computed as max(x, 0) + log(1 + exp(-|x|))."""
    grown = wide.apply(relax.op.exp, wide.apply(relax.op.negative, wide.apply(relax.op.abs, wide.x)))
    rest = wide.apply(relax.op.log, wide.apply(relax.op.add, grown, 1.0))
    return wide.apply(relax.op.add, wide.apply(relax.op.maximum, wide.x, 0.0), rest)


def _softsign(made: Real) -> relax.Call:
    return made.call(relax.op.divide, made.x, made.apply(relax.op.add, made.apply(relax.op.abs, made.x), 1.0))


def _mish(node: Node, wide: Wide) -> relax.Expr:
    """Returns x * tanh(softplus(x))."""
    return wide.apply(relax.op.multiply, wide.x, wide.apply(relax.op.tanh, _softplus(node, wide)))


def _selu(node: Node, wide: Wide) -> relax.Expr:
    below = real.elu(wide, node.attribute("alpha", _SELU_ALPHA))
    return wide.apply(relax.op.multiply, below, node.attribute("gamma", _SELU_GAMMA))


def _celu(node: Node, wide: Wide) -> relax.Expr:
    """Returns max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha = node.attribute("alpha", 1.0)
    node.require_supported(alpha != 0, "has an alpha of 0, by which it would divide")
    grown = wide.apply(relax.op.exp, wide.apply(relax.op.divide, wide.apply(relax.op.minimum, wide.x, 0.0), alpha))
    below = wide.apply(relax.op.multiply, wide.apply(relax.op.subtract, grown, 1.0), alpha)
    return wide.apply(relax.op.add, wide.apply(relax.op.maximum, wide.x, 0.0), wide.apply(relax.op.minimum, below, 0.0))


_RELAX: dict[str, Callable[[relax.Expr], relax.Call]] = {
    "Acos": relax.op.acos,
    "Asin": relax.op.asin,
    "Atan": relax.op.atan,
    "Cos": relax.op.cos,
    "Log": relax.op.log,
    "Sin": relax.op.sin,
    "Tan": relax.op.tan,
}

# Functions that MLAS implements: ONNX's name -> MLAS's name.
_FLOAT32 = {"Erf": "erf", "Exp": "exp", "Sigmoid": "logistic", "Tanh": "tanh"}

ACTIVATIONS: dict[str, tuple[Convert, tuple[int, int]]] = {
    **{name: (_of(real.of_float32(of)), (1, 1)) for name, of in _FLOAT32.items()},
    **{name: (_of(real.of_relax(make)), (1, 1)) for name, make in _RELAX.items()},
    "Celu": (_wide(_celu), (1, 1)),
    "Elu": (_wide(lambda node, wide: real.elu(wide, node.attribute("alpha", 1.0))), (1, 1)),
    "Gelu": (gelu, (1, 1)),
    "Mish": (_wide(_mish), (1, 1)),
    "Selu": (_wide(_selu), (1, 1)),
    "Softplus": (_wide(_softplus), (1, 1)),
    "Softsign": (_of(_softsign), (1, 1)),
    "Swish": (function(partial(_logistic_gate, default=1.0)), (1, 1)),
    "com.microsoft.BiasGelu": (gelu, (2, 2)),
    "com.microsoft.FastGelu": (gelu, (1, 2)),
    "com.microsoft.Gelu": (gelu, (1, 1)),
    "com.microsoft.QuickGelu": (function(partial(_logistic_gate, default=1.702)), (1, 1)),
}
