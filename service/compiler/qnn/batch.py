"""Batch: a model of one sample becomes one of several.

Requires: every tensor that is computed of an input has a first dimension of 1, the sample's.
Ensures: that dimension is the batch, and no sample meets another: every operator gives for several what it gave for
one, as its type inference sees it. The oracle computes sample by sample, so that verification sees it too.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.core.errors import UnsupportedOperator


def batched(module: tvm.IRModule, batch: int) -> tvm.IRModule:
    """`module` for `batch` samples.

    Raises:
        UnsupportedOperator: an operator mixes the first dimension with others.
    """
    if batch == 1:
        return module
    function = graph.main_of(module)
    builder = relax.BlockBuilder()
    params = [relax.Var(each.name, relax.TensorType(_grown(each, batch), each.ty.dtype)) for each in function.params]
    environment: dict[relax.Var, relax.Expr] = dict(zip(function.params, params, strict=True))
    varying = set(function.params)
    with builder.function("main", params):
        with builder.dataflow():
            for var, value in graph.bindings(function):
                own = varying.isdisjoint(graph.variables(value))  # the same for every sample
                if not own:
                    varying.add(var)
                environment[var] = _rebuilt(builder, var, value, environment, 0 if own else batch)
            outputs = [builder.emit_output(graph.substitute(each, environment)) for each in graph.results_of(function)]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get()


def _rebuilt(
    builder: relax.BlockBuilder,
    var: relax.Var,
    value: relax.Expr,
    environment: dict[relax.Var, relax.Expr],
    batch: int,
) -> relax.Expr:
    """`value` for `batch` samples; as it is where that is 0."""
    if not isinstance(value, relax.Call):
        return graph.substitute(value, environment)
    if not batch:
        args = [graph.substitute(arg, environment) for arg in value.args]
        return graph.emit(builder, graph.with_args(value, args), var.name)
    wanted = _grown(var, batch)
    args = [graph.substitute(arg, environment) for arg in value.args]
    if value.op.name in ("relax.concat", "relax.qnn.concatenate"):
        args[0] = relax.Tuple([_for_each(builder, part, batch) for part in args[0].fields])
    is_reshape = value.op.name == "relax.reshape"  # the one operator that is told its result's shape
    call = relax.op.reshape(args[0], wanted) if is_reshape else graph.with_args(value, args)
    result = graph.emit(builder, call, var.name)
    if graph.shape_of(result) != wanted:
        raise _mixed(str(value.op.name), var)
    return result


def _for_each(builder: relax.BlockBuilder, part: relax.Expr, batch: int) -> relax.Expr:
    """A part of a concatenation: what no input decides, as a class token, is there once for each sample."""
    first, *rest = graph.shape_of(part)
    return part if first != 1 else builder.emit(relax.op.broadcast_to(part, (batch, *rest)))


def _grown(var: relax.Var, batch: int) -> tuple[int, ...]:
    """The shape of `var` for `batch` samples."""
    shape = graph.shape_of(var) if isinstance(var.ty, relax.TensorType) else ()
    if not shape or shape[0] != 1:
        raise _mixed("the tensor", var)
    return batch, *shape[1:]


def _mixed(what: str, var: relax.Var) -> UnsupportedOperator:
    name = what.removeprefix("relax.").removeprefix("qnn.")
    return UnsupportedOperator(
        f"{name} {str(var.name)!r} does not keep samples apart in its first dimension",
        op=name,
        tensor=str(var.name),
        hint="the model can be built for a batch of 1 only",
    )
