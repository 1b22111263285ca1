"""Computes the elements of tensors that depend only on constants."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array

_MOST_BINDINGS = 256  # limit of a chain of bindings; chains of weights and shapes have a few bindings


def evaluated(builder: relax.BlockBuilder, value: relax.Expr) -> Array | None:
    """Returns the elements of `value`, computed by the oracle, or None if it depends on an input of the model.

    Args:
        builder: the builder that contains the bindings of all emitted values.
    """
    chain = _bindings(builder, value)
    if chain is None:
        return None
    inner = relax.BlockBuilder()
    known: dict[relax.Var, relax.Expr] = {}
    with inner.function("main", []):
        with inner.dataflow():
            for var, bound in chain.items():
                known[var] = graph.emit(inner, _substituted(bound, known))
            output = inner.emit_output(graph.substitute(value, known))
        inner.emit_func_output(output)
    return np.asarray(oracle.run(inner.get(), get_mode(ONNXRUNTIME), [])[0])


def _bindings(builder: relax.BlockBuilder, value: relax.Expr) -> dict[relax.Var, relax.Expr] | None:
    """Returns the bindings that `value` depends on, in order, or None if it depends on an input of the model or on more
    than `_MOST_BINDINGS` bindings.
    """
    found: dict[relax.Var, relax.Expr] = {}
    waiting = [(var, False) for var in graph.variables(value)]
    while waiting:
        var, is_ready = waiting.pop()
        if var in found:
            continue
        bound = builder.lookup_binding(var)
        if bound is None or len(found) >= _MOST_BINDINGS:
            return None
        if is_ready:
            found[var] = bound
        else:
            waiting.append((var, True))
            waiting += [(each, False) for each in graph.variables(bound)]
    return found


def _substituted(bound: relax.Expr, known: dict[relax.Var, relax.Expr]) -> relax.Expr:
    if isinstance(bound, relax.Call):
        return graph.with_args(bound, [graph.substitute(arg, known) for arg in bound.args])
    return graph.substitute(bound, known)
