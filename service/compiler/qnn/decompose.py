"""Decompose: turns each transposed convolution into an ordinary one, and interleaves its phases
(`numerics.sums.transposed`).

Requires: a model of `qnn.*` operators.
Ensures: no `qnn.conv2d_transpose` is left except simulated ones, and every output is unchanged. Accumulators are
    requantized before the phases are interleaved. The interleaving then copies a quarter of the bytes that accumulators
    would have, and one kernel may compute the convolution and the requantization.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics.sums.transposed import Phases


def decompose(module: tvm.IRModule) -> tvm.IRModule:
    """Returns `module` without transposed convolutions."""
    # interleaved result -> its phases, and the variable that holds them
    phased: dict[relax.Expr, tuple[Phases, relax.Var]] = {}

    def decompose_call(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        is_one = operation is not None and operation.name == "qnn.conv2d_transpose"
        if operation is not None and is_one and not operation.is_simulated:
            phases = Phases.of(operation)
            sums = graph.emit(builder, phases.convolution(operation, *args), f"{args[0].name}_phases")
            result = graph.emit(builder, phases.interleaved(builder.emit, sums), f"{args[0].name}_interleaved")
            phased[result] = phases, sums
            return result
        if operation is None or operation.name != "qnn.requantize" or args[0] not in phased:
            return graph.with_args(call, args)
        phases, sums = phased[args[0]]
        in_type = phases.repeated(operation.quantized("in_type"))
        scaled = graph.emit(builder, ops.with_operands(call, sums, in_type=in_type), f"{sums.name}_requantized")
        return phases.interleaved(builder.emit, scaled)

    return relax.transform.DeadCodeElimination()(graph.rewrite(module, decompose_call))
