"""Fold constants: computes at compile time everything that does not depend on an input, with the mode's own oracle.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change. An operator is folded if all of its operands are constants and the oracle can
    evaluate it, unless its result has more than `_MOST_ELEMENTS` elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import value_of

_MOST_ELEMENTS = 1 << 24  # a limit, because a file can repeat a few bytes to any size


def fold_constants(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with computed constants replaced by their values, and the names of these constants."""
    function = graph.main_of(module)
    known: dict[relax.Var, Any] = {}
    folded: dict[relax.Expr, relax.Var] = {}
    for var, value, operation in graph.operations(function):
        tensor = isinstance(value, relax.Call) and isinstance(var.ty, relax.TensorType)
        if tensor and oracle.knows(value) and _constant(value.args, known) and _is_small(var):
            known[var] = oracle.evaluate(value, operation, mode, known)
            folded[value] = var

    def fold(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if call not in folded:
            return graph.with_args(call, args)
        value = np.asarray(known[folded[call]])
        return relax.const(value, value.dtype.name)  # without the dtype, float64 would become float32

    names = [str(var.name) for var in folded.values()]
    return (graph.rewrite(module, fold) if names else module), names


def _constant(operands: Any, known: dict[relax.Var, Any]) -> bool:
    """Returns true if the values of all operands are known and at least one operand is a tensor."""
    tensors = [part for operand in operands for part in getattr(operand, "fields", [operand])]
    tensors = [tensor for tensor in tensors if not isinstance(tensor, relax.ShapeExpr | tirx.IntImm)]
    return bool(tensors) and all(tensor in known or value_of(tensor) is not None for tensor in tensors)


def _is_small(var: relax.Var) -> bool:
    return math.prod(graph.shape_of(var)) <= _MOST_ELEMENTS
