"""The pass that makes every operator compute all samples of a batch at once.

Requires: the first dimension of every input is 1, the sample's.
Ensures: that dimension becomes the batch size, in every output too, and no result of one sample depends on another. The
oracle computes sample by sample, so that verification checks this too.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.batch.grower import Grower, Operand
from service.compiler.qnn.batch.rules import rule_of
from service.compiler.qnn.batch.samples import Samples, grown


def batched(module: tvm.IRModule, batch: int) -> tvm.IRModule:
    """Returns `module` rewritten for `batch` samples.

    Raises:
        UnsupportedOperator: an operator mixes samples, or has no rule that keeps them apart.
    """
    if batch == 1:
        return module
    function = graph.main_of(module)
    builder = relax.BlockBuilder()
    grower = Grower(builder, batch)
    params = [_param(grower, each) for each in function.params]
    with builder.function("main", params):
        with builder.dataflow():
            for var, value in graph.bindings(function):
                grower.name = str(var.name)
                grower.values[var] = _rebuilt(grower, var, value)
            outputs = [builder.emit_output(_first(grower, each)) for each in graph.results_of(function)]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get()


def _param(grower: Grower, old: relax.Var) -> relax.Var:
    grower.name = str(old.name)
    shape = graph.shape_of(old)
    if shape[:1] != (1,):
        raise grower.mixed("the input")
    new = relax.Var(old.name, relax.TensorType(list(grown(shape, 0, grower.batch)), old.ty.dtype))
    grower.values[old] = Samples(new, shape)
    return new


def _rebuilt(grower: Grower, var: relax.Var, value: relax.Expr) -> Operand:
    if isinstance(value, relax.Var):
        return grower.values[value]
    own = {each: grower.values[each] for each in graph.variables(value)}
    if not any(isinstance(each, Samples) for each in own.values()):  # the same for every sample
        if not isinstance(value, relax.Call):
            return graph.substitute(value, own)
        args = [graph.substitute(arg, own) for arg in value.args]
        return grower.emit(graph.with_args(value, args))
    if not isinstance(value, relax.Call) or not isinstance(var.ty, relax.TensorType):
        raise grower.mixed("the tensor")
    return rule_of(value)(grower, value, graph.shape_of(var))


def _first(grower: Grower, result: relax.Expr) -> relax.Expr:
    """Returns an output with the samples in its first dimension."""
    made, grower.name = grower.operand(result), str(getattr(result, "name", ""))
    if not isinstance(made, Samples) or made.shape[:1] != (1,) or made.before != 1:
        raise grower.mixed("the output")
    return grower.reshaped(made.value, grown(made.shape, 0, grower.batch))
