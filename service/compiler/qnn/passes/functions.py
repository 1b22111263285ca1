"""Fuse functions: replaces `dequantize`, a defined function of real values (`qnn.ops.defined`) and `quantize` by the
stored form of the function.

The kernel of a convolution or dense layer computes the stored form together with the layer, as it computes a
requantization. Functions of 8-bit values stay as they are: `passes.tables` makes tables of them.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change: the stored form is defined as these three operators.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops import defined

_STORAGES = ("int16", "int32")


def fuse_functions(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with stored forms, and the names of the tensors that they compute."""
    function = graph.main_of(module)
    uses = graph.uses_of(function)
    operations = {var: operation for var, _, operation in graph.operations(function) if operation is not None}
    found: dict[relax.Call, tuple[Operation, Operation]] = {}  # quantize -> (dequantize, function)
    names = []
    for var, quantize in operations.items():
        chain = _chain(quantize, operations, uses)
        if chain is not None and not any(str(dim) == "0" for dim in var.ty.shape):
            found[quantize.call] = chain
            names.append(str(var.name))
    if not found:
        return module, []
    values: dict[relax.Var, relax.Expr] = {}  # old variable that a dequantize reads -> its new expression

    def rewrite(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if operation is not None and operation.name == "qnn.dequantize" and isinstance(call.args[0], relax.Var):
            values[call.args[0]] = args[0]
        if call not in found or operation is None:
            return graph.with_args(call, args)
        dequantize, applied = found[call]
        definition = defined.definition_of(applied.name)
        assert definition is not None
        types = dequantize.quantized("in_type"), operation.per_tensor("out_type")
        parameters = {name: applied.attr(name) for name in definition.parameters}
        return defined.stored_form(definition, values[dequantize.call.args[0]], *types, **parameters)

    return graph.rewrite(module, rewrite), names


def _chain(
    quantize: Operation, operations: dict[relax.Var, Operation], uses: dict[relax.Var, int]
) -> tuple[Operation, Operation] | None:
    """Returns the dequantize and the function that compute the operand of `quantize`, if nothing else reads them."""
    if quantize.name != "qnn.quantize" or not quantize.quantized("out_type").is_per_tensor:
        return None
    applied = _only(quantize, operations, uses)
    if applied is None or not defined.is_real(applied) or len(applied.call.args) != 1:
        return None
    dequantize = _only(applied, operations, uses)
    if dequantize is None or dequantize.name != "qnn.dequantize" or not isinstance(dequantize.call.args[0], relax.Var):
        return None
    in_type = dequantize.quantized("in_type")
    return (dequantize, applied) if in_type.storage in _STORAGES and in_type.blocks is None else None


def _only(operation: Operation, operations: dict[relax.Var, Operation], uses: dict[relax.Var, int]) -> Operation | None:
    """Returns the operation that computes the first operand, if only `operation` reads it."""
    operand = operation.call.args[0]
    return operations.get(operand) if isinstance(operand, relax.Var) and uses[operand] == 1 else None
