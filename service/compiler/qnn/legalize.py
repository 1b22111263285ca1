"""Legalize: gives each convolution and dense layer the operand types that the target's instructions need.

Requires: a model of `qnn.*` operators.
Ensures: every `qnn.conv2d` and `qnn.dense` of 8-bit operands has the target's operand types, and the same real values.
Simulated operators are unchanged.

Three conventions cover the targets (Jain et al. 2020, section 4.3):
- u8 x s8, for x86 VNNI: 128 is added to a signed activation and its zero point, and subtracted from legacy unsigned
  weights.
- s8 x s8, for ARM's dot product.
- s16 x s16, for targets on which 8-bit multiplication is not faster than 16-bit. The zero point is subtracted from both
  operands before they are stored. Padding is then zero, and three of the four terms of the expansion are zero.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics.sums.accumulate import constant
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.compiler.targets import OperandTypes


def legalize(module: tvm.IRModule, operands: OperandTypes) -> tvm.IRModule:
    """Returns `module` with the operands of its convolutions and dense layers stored as `operands`."""
    # (tensor, new type) -> shifted tensor, which all readers share
    moved: dict[tuple[relax.Var, str], relax.Var] = {}

    def legalize_call(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if operation is None or operation.name not in ("qnn.conv2d", "qnn.dense") or operation.is_simulated:
            return graph.with_args(call, args)
        if value_of(args[1]) is None:
            return graph.with_args(call, args)  # instructions need weights that are packed while compiling
        data, weight, *bias = args
        in_type = _stored_as(operation.per_tensor("in_type"), operands.data)
        weight_type = _stored_as(operation.quantized("weight_type"), operands.weight)
        if in_type.dtype != operation.per_tensor("in_type").dtype:
            key = (data, str(in_type))
            if key not in moved:
                shift = ops.requantize(data, operation.per_tensor("in_type"), in_type)
                moved[key] = graph.emit(builder, shift, f"{data.name}_{in_type.dtype}")
            data = moved[key]
        return ops.with_operands(
            call, data, _moved_weight(operation, weight, weight_type), *bias, in_type=in_type, weight_type=weight_type
        )

    return graph.rewrite(module, legalize_call)


def _stored_as(quantized: QuantizedType, storage: str) -> QuantizedType:
    """Returns the type of the same real values stored as `storage`. For 16-bit storage, its zero point is 0.

    Storage bounds are dropped: the shift must not clamp values that exceed the tensor's own bounds.
    """
    if quantized.dtype not in ("int8", "uint8") or quantized.dtype == storage:
        return quantized
    if storage == "int16":
        return QuantizedType("int16", quantized.scales, (0,), axis=quantized.axis)
    shift = STORAGE_RANGES[storage][0] - STORAGE_RANGES[quantized.dtype][0]
    moved = tuple(zero_point + shift for zero_point in quantized.zero_points)
    return QuantizedType(storage, quantized.scales, moved, axis=quantized.axis)


def _moved_weight(operation: Operation, weight: relax.Expr, weight_type: QuantizedType) -> relax.Expr:
    old = operation.quantized("weight_type")
    if weight_type == old:
        return weight
    stored = constant(operation, weight).astype(np.int64)
    moves = np.array(weight_type.zero_points, np.int64) - np.array(old.zero_points)
    values = stored + moves.reshape([-1] + [1] * (stored.ndim - 1))
    return relax.const(values.astype(weight_type.dtype))
