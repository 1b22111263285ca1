"""Decompose: turns each transposed convolution into an ordinary one, and interleaves its phases
(`numerics.sums.transposed`).

Requires: a model of `qnn.*` operators.
Ensures: no `qnn.conv2d_transpose` is left except simulated ones and those with computed weights, and every output is
    unchanged. Accumulators are
    requantized before the phases are interleaved. The interleaving then copies a quarter of the bytes that accumulators
    would have, and one kernel may compute the convolution and the requantization.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics.expressed import bias_of
from service.compiler.qnn.numerics.sums.transposed import Phases
from service.compiler.qnn.operation import value_of

_CHANNELS = 3  # the axis of the channels of an image


def decompose(module: tvm.IRModule) -> tvm.IRModule:
    """Returns `module` without transposed convolutions."""
    # interleaved result -> its phases, and the variable that holds them
    phased: dict[relax.Expr, tuple[Phases, relax.Var]] = {}

    def decompose_call(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        is_one = operation is not None and operation.name == "qnn.conv2d_transpose"
        is_constant = is_one and value_of(args[1]) is not None
        if operation is not None and is_constant and not operation.is_simulated:
            phases, (x, weight, *biases) = Phases.of(operation), args
            convolution = phases.convolution(operation, x, weight, biases[0] if biases else None, builder)
            sums = graph.emit(builder, convolution, f"{x.name}_phases")
            result = graph.emit(builder, phases.interleaved(builder.emit, sums), f"{x.name}_interleaved")
            phased[result] = phases, sums
            return result
        if operation is None or operation.name != "qnn.requantize" or args[0] not in phased:
            return graph.with_args(call, args)
        types = {name: operation.quantized(name) for name in ("in_type", "out_type")}
        if any(each.axis not in (None, _CHANNELS) for each in types.values()):
            return graph.with_args(call, args)
        phases, sums = phased[args[0]]
        repeated = {name: phases.repeated(each) for name, each in types.items()}
        bias = [relax.const(np.tile(bias_of(operation, arg), phases.count), "float32") for arg in args[1:]]
        scaled = graph.emit(builder, ops.with_operands(call, sums, *bias, **repeated), f"{sums.name}_requantized")
        return phases.interleaved(builder.emit, scaled)

    return relax.transform.DeadCodeElimination()(graph.rewrite(module, decompose_call))
