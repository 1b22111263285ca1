"""The pass that makes every operator compute all samples of a batch at once.

Requires: the first dimension of every input counts samples, and is 1.
Ensures: that dimension becomes the batch size, in every output too, and the result of one sample does not depend on
    another sample. The oracle computes one sample at a time, so verification also checks that samples are independent.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.batch.batch_builder import BatchBuilder, Operand
from service.compiler.qnn.batch.rules import rule_of
from service.compiler.qnn.batch.samples import Samples, batched_shape


def batched(module: tvm.IRModule, batch: int) -> tvm.IRModule:
    """Returns `module` rewritten for `batch` samples.

    Raises:
        UnsupportedOperator: an operator mixes samples, or has no rule that keeps them apart.
    """
    if batch == 1:
        return module
    function = graph.main_of(module)
    builder = relax.BlockBuilder()
    batch_builder = BatchBuilder(builder, batch)
    params = [_param(batch_builder, each) for each in function.params]
    with builder.function("main", params):
        with builder.dataflow():
            for var, value in graph.bindings(function):
                batch_builder.name = str(var.name)
                batch_builder.values[var] = _rebuilt(batch_builder, var, value)
            outputs = [builder.emit_output(_first(batch_builder, each)) for each in graph.results_of(function)]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get()


def _param(batch_builder: BatchBuilder, old: relax.Var) -> relax.Var:
    batch_builder.name = str(old.name)
    shape = graph.shape_of(old)
    if shape[:1] != (1,):
        raise batch_builder.mixed("the input")
    new = relax.Var(old.name, relax.TensorType(list(batched_shape(shape, 0, batch_builder.batch)), old.ty.dtype))
    batch_builder.values[old] = Samples(new, shape)
    return new


def _rebuilt(batch_builder: BatchBuilder, var: relax.Var, value: relax.Expr) -> Operand:
    if isinstance(value, relax.Var):
        return batch_builder.values[value]
    own = {each: batch_builder.values[each] for each in graph.variables(value)}
    if not any(isinstance(each, Samples) for each in own.values()):  # the result is the same for every sample
        if not isinstance(value, relax.Call):
            return graph.substitute(value, own)
        args = [graph.substitute(arg, own) for arg in value.args]
        return batch_builder.emit(graph.with_args(value, args))
    if not isinstance(value, relax.Call) or not isinstance(var.ty, relax.TensorType):
        raise batch_builder.mixed("the tensor")
    return rule_of(value)(batch_builder, value, graph.shape_of(var))


def _first(batch_builder: BatchBuilder, result: relax.Expr) -> relax.Expr:
    """Returns an output with its samples along the first dimension."""
    made, batch_builder.name = batch_builder.operand(result), str(getattr(result, "name", ""))
    if not isinstance(made, Samples) or made.shape[:1] != (1,) or made.before != 1:
        raise batch_builder.mixed("the output")
    return batch_builder.reshaped(made.value, batched_shape(made.shape, 0, batch_builder.batch))
