"""The functions of gates, and the limits of their operands, for recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.real import Real, Wide
from service.compiler.qnn import ops

Formula = Callable[[Real, float, float], relax.Call]


def _affine(made: Real, alpha: float, beta: float) -> relax.Call:
    return made.call(relax.op.add, made.apply(relax.op.multiply, made.x, alpha), beta)


def _hard_sigmoid(made: Real, alpha: float, beta: float) -> relax.Call:
    above = made.apply(relax.op.maximum, made(_affine(made, alpha, beta)), 0.0)
    return made.call(relax.op.minimum, above, 1.0)


def _scaled_tanh(made: Real, alpha: float, beta: float) -> relax.Call:
    inner = made(ops.real_function("tanh", made.apply(relax.op.multiply, made.x, beta)))
    return made.call(relax.op.multiply, inner, alpha)


def _thresholded(made: Real, alpha: float, _: float) -> relax.Call:
    return made.call(relax.op.where, made.apply(relax.op.greater, made.x, alpha), made.x, 0.0)


def _softsign(made: Real, _alpha: float, _beta: float) -> relax.Call:
    return made.call(relax.op.divide, made.x, made.apply(relax.op.add, made.apply(relax.op.abs, made.x), 1.0))


def _softplus(made: Real, _alpha: float, _beta: float) -> relax.Call:
    def of(wide: Wide) -> relax.Expr:
        return wide.apply(relax.op.log, wide.apply(relax.op.add, wide.apply(relax.op.exp, wide.x), 1.0))

    return real.in_float64(of)(made)


# Function in lower case -> its formula, the defaults of its parameters, and how many of them the attributes
# `activation_alpha` and `activation_beta` contain (core/providers/cpu/rnn/rnn_helpers.cc).
_FUNCTIONS: dict[str, tuple[Formula, tuple[float, float], tuple[bool, bool]]] = {
    "affine": (_affine, (1.0, 0.0), (True, True)),
    "elu": (
        lambda made, alpha, _: real.in_float64(lambda wide: real.elu(wide, alpha))(made),
        (1.0, 0.0),
        (True, False),
    ),
    "hardsigmoid": (_hard_sigmoid, (0.2, 0.5), (True, True)),
    "leakyrelu": (lambda made, alpha, _: real.sloped(made, relax.const(alpha, "float32")), (0.01, 0.0), (True, False)),
    "relu": (lambda made, _alpha, _beta: relax.op.nn.relu(made.x), (0.0, 0.0), (False, False)),
    "scaledtanh": (_scaled_tanh, (1.0, 1.0), (True, True)),
    "sigmoid": (lambda made, _alpha, _beta: ops.real_function("logistic", made.x), (0.0, 0.0), (False, False)),
    "softplus": (_softplus, (0.0, 0.0), (False, False)),
    "softsign": (_softsign, (0.0, 0.0), (False, False)),
    "tanh": (lambda made, _alpha, _beta: ops.real_function("tanh", made.x), (0.0, 0.0), (False, False)),
    "thresholdedrelu": (_thresholded, (1.0, 0.0), (True, False)),
}
# Functions whose missing parameters are 0 in ONNX Runtime, other than in ONNX
_WITHOUT_DEFAULTS = ("affine", "scaledtanh", "thresholdedrelu")


@dataclass(frozen=True)
class Function:
    """A function of a gate with its parameters."""

    formula: Formula
    alpha: float
    beta: float

    def __call__(self, made: Real, x: relax.Expr) -> relax.Expr:
        return made(self.formula(Real(lambda expr, _: made(expr), x), self.alpha, self.beta))


def functions_of(node: Node, directions: int, defaults: tuple[str, ...]) -> list[tuple[Function, ...]]:
    """Returns the functions of each direction, from the attributes `activations`, `activation_alpha` and
    `activation_beta`.
    """
    named = [str(each).lower() for each in node.attribute("activations", ())] or [
        each.lower() for each in defaults * directions
    ]
    node.require(len(named) == len(defaults) * directions, f"has {len(named)} functions for {directions} directions")
    alphas, betas = (list(node.attribute(f"activation_{name}", ())) for name in ("alpha", "beta"))
    functions = []
    for name in named:
        if name not in _FUNCTIONS:
            node.unsupported(f"has the function {shortened(name)}, which cannot be compiled")
        formula, (alpha, beta), (has_alpha, has_beta) = _FUNCTIONS[name]
        if name in _WITHOUT_DEFAULTS and not (alphas and (betas or not has_beta)):
            node.unsupported(f"has the function {name} without its parameters (activation_alpha, activation_beta)")
        functions.append(
            Function(
                formula,
                float(alphas.pop(0)) if has_alpha and alphas else alpha,
                float(betas.pop(0)) if has_beta and betas else beta,
            )
        )
    count = len(defaults)
    return [tuple(functions[start : start + count]) for start in range(0, len(functions), count)]
