"""Patterns: subgraphs that dialects replace (`compiler.dialects`). They are written with TVM's pattern language
(`tvm.relax.dpl`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import dpl

from service.compiler.qnn import graph, ops
from service.compiler.qnn.joins import join_moves
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.transposes import move_transposes
from service.core.errors import OctetError, Unsupported

# (the matched subgraph's result, the expression of each part of the pattern) -> the replacement; None for none
Rewrite = Callable[[relax.Expr, Mapping[Any, relax.Expr]], relax.Expr | None]


@dataclass(frozen=True)
class Pattern:
    """A subgraph and its replacement.

    Attributes:
        name: the name with the dialect: `mine.fused`.
        pattern: the subgraph that is matched.
        rewrite: builds the replacement.
        changes_values: true if the replacement computes other values than the subgraph. It is then part of the import,
            so that the oracle computes it too. Otherwise it is a pass, and the check of every build compares the
            results of the compiled model with those of the subgraph.
    """

    name: str
    pattern: dpl.DFPattern
    rewrite: Rewrite
    changes_values: bool


# The patterns by name, in the order in which they are applied.
PATTERNS: dict[str, Pattern] = {}


# Patterns of float models, which are applied before such a model is quantized: the simulated forms.
SIMULATED: dict[str, Pattern] = {}


def apply_patterns(
    module: tvm.IRModule, names: Sequence[str], patterns: Mapping[str, Pattern] = PATTERNS
) -> tuple[tvm.IRModule, list[str]]:
    """Applies patterns in this order.

    Returns:
        The module, and the name of the pattern for each subgraph that was replaced.

    Raises:
        Unsupported: a dialect's function failed, or built an expression that has no type.
    """
    applied: list[str] = []
    for name in names:
        module, count = _apply(module, patterns[name])
        applied += [name] * count
    return module, applied


def matched_form(module: tvm.IRModule) -> tvm.IRModule:
    """Returns a module that computes the same, without the permutations of axes between operators that importers write
    around images. The remaining ones precede `dequantize`, and those of constants are computed.
    """
    return graph.rewrite(move_transposes(join_moves(module)), _permuted_before_dequantize)


def _permuted_before_dequantize(
    builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
) -> relax.Expr:
    made = builder.lookup_binding(args[0]) if args and isinstance(args[0], relax.Var) else None
    if graph.name_of(call) != "permute_dims" or made is None or graph.name_of(made) != "qnn.dequantize":
        return graph.with_args(call, args)
    found = Operation(made)
    in_type, axes = found.quantized("in_type"), tuple(int(axis) for axis in call.attrs["axes"])
    if in_type.blocks is not None:
        return graph.with_args(call, args)
    if in_type.axis is not None:
        in_type = replace(in_type, axis=axes.index(in_type.axis))
    value = value_of(made.args[0])
    if value is not None:
        return ops.dequantize(relax.const(np.ascontiguousarray(value.transpose(axes))), in_type)
    return ops.dequantize(graph.emit(builder, relax.op.permute_dims(made.args[0], axes)), in_type)


def _apply(module: tvm.IRModule, pattern: Pattern) -> tuple[tvm.IRModule, int]:
    failures: list[Exception] = []
    count = 0

    def rewrite(found: relax.Expr, parts: Mapping[Any, relax.Expr]) -> relax.Expr:
        nonlocal count
        if failures:
            return found
        try:
            made = pattern.rewrite(found, parts)
            if made is not None:
                _check_type(found, made)
        except Exception as error:  # an exception must not pass through TVM's code
            failures.append(error)
            return found
        if made is None:
            return found
        count += 1
        return made

    try:
        made = dpl.rewrite_call(pattern.pattern, rewrite, graph.main_of(module))
        if failures:
            raise failures[0]
        if not count:
            return module, 0
        return typed_again(relax.transform.DeadCodeElimination()(tvm.IRModule({"main": made}))), count
    except Exception as error:
        raise _failed(pattern, error) from error


def _check_type(found: relax.Expr, made: relax.Expr) -> None:
    """Raises Unsupported unless the replacement has the type of the matched expression."""
    if not isinstance(made, relax.Expr):
        raise Unsupported(f"its replacement is {made!r}, not an expression")
    wanted, given = found.ty, _type_of(relax.BlockBuilder(), made)
    if not tvm_ffi.structural_equal(wanted, given):
        raise Unsupported(f"its replacement is {given}, in place of {wanted}")


def _type_of(builder: relax.BlockBuilder, expr: relax.Expr) -> tvm.ir.Type:
    """Returns the type of an expression of nested calls."""
    if not isinstance(expr, relax.Call):
        return expr.ty
    operands = [relax.Var("x", _type_of(builder, arg)) if isinstance(arg, relax.Call) else arg for arg in expr.args]
    return graph.typed(builder, graph.with_args(expr, operands)).ty


def typed_again(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with the types of all operators inferred again."""
    return graph.rewrite(module, lambda builder, call, args, operation: graph.with_args(call, args))


def _failed(pattern: Pattern, error: Exception) -> OctetError:
    what = error.message if isinstance(error, OctetError) else f"{type(error).__name__}: {error}"
    first = what.strip().splitlines()[-1] if what.strip() else type(error).__name__
    return Unsupported(f"the pattern {pattern.name} failed: {first}", op=pattern.name, hint="mend the dialect")
