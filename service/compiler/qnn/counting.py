"""Counting: adds outputs to a model that count the values which its operators store, before these are clamped.

Requires: a model of `qnn.*` operators, as an importer returns it.
Ensures: the model's outputs do not change. They are followed by the results of `qnn.value_counts`, one for each
    operator of `COUNTED` whose result is stored in 8 or 16 bits.

Operators whose results cannot exceed their range (pooling, softmax, reshaping) are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics.counting import range_of
from service.compiler.qnn.operation import Operation
from service.core.models.ranges import StoredRange

_STORAGES = ("int8", "uint8", "int16", "uint16")
_REAL: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "qnn.add": relax.op.add,
    "qnn.sub": relax.op.subtract,
    "qnn.mul": relax.op.multiply,
}
COUNTED = ("qnn.quantize", "qnn.requantize", "qnn.requantize_add", *_REAL)


@dataclass(frozen=True)
class Counting:
    """A model that counts the values of its tensors.

    Attributes:
        module: a module whose outputs are those of the model, followed by the counts.
        ranges: the tensors that the counts belong to, in order.
    """

    module: tvm.IRModule
    ranges: tuple[StoredRange, ...]


def count_values(module: tvm.IRModule) -> Counting:
    """Returns `module` with counts of its stored values."""
    function = graph.main_of(module)
    builder = relax.BlockBuilder()
    params = [relax.Var(param.name, param.ty) for param in function.params]
    environment: dict[relax.Var, relax.Expr] = dict(zip(function.params, params, strict=True))
    counts: list[relax.Expr] = []
    ranges: list[StoredRange] = []
    with builder.function("main", params):
        with builder.dataflow():
            for var, value, operation in graph.operations(function):
                new = graph.substitute(value, environment)
                if isinstance(value, relax.Call):
                    args = [graph.substitute(arg, environment) for arg in value.args]
                    new = graph.with_args(value, args)
                environment[var] = graph.emit(builder, new, str(var.name))
                if operation is not None and _is_counted(operation):
                    counted = _counts(builder, operation, args, str(var.name))
                    counts.append(graph.emit(builder, counted, f"{var.name}_counts"))
                    ranges.append(range_of(str(var.name), operation.per_tensor("out_type")))
            results = [graph.substitute(result, environment) for result in graph.results_of(function)]
            outputs = [builder.emit_output(each) for each in (*results, *counts)]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return Counting(builder.get(), tuple(ranges))


def _is_counted(operation: Operation) -> bool:
    return (
        operation.name in COUNTED
        and operation.quantized("out_type").storage in _STORAGES
        and operation.quantized("out_type").is_per_tensor
    )


def _counts(builder: relax.BlockBuilder, operation: Operation, args: list[relax.Expr], name: str) -> relax.Expr:
    """Returns the counts of an operator with these operands."""
    out_type = operation.per_tensor("out_type")

    def real(index: int, type_name: str) -> relax.Expr:
        quantized = replace(operation.quantized(type_name), expressed="float32")
        operand = ops.dequantize(args[index], quantized)
        return graph.emit(builder, operand, f"{name}_operand{index}")

    if operation.name == "qnn.quantize":
        wide = out_type.expressed == "float32"
        value = args[0] if wide else graph.emit(builder, relax.op.astype(args[0], "float32"), f"{name}_float32")
        return ops.value_counts(value, out_type)
    if operation.name == "qnn.requantize" and len(args) == 1:
        return ops.value_counts(args[0], out_type, operation.quantized("in_type"))
    if operation.name == "qnn.requantize":
        value = relax.op.add(real(0, "in_type"), args[1])
    elif operation.name == "qnn.requantize_add":
        value = relax.op.add(real(0, "in_type"), real(1, "residual_type"))
    else:
        value = _REAL[operation.name](real(0, "lhs_type"), real(1, "rhs_type"))
    return ops.value_counts(graph.emit(builder, value, f"{name}_real"), out_type)
