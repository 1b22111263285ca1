"""Keep weights: operators read the stored weights instead of dequantized ones.

Folded weights would be float32, which is four or eight times as large. With few rows, the time of a product is the time
of reading its weights. Of a table, only the rows that a call reads are dequantized.

Requires: a model of `qnn.*` and plain operators, whose constants are not folded yet.
Ensures: the outputs do not change. Each `qnn.real_matmul` by constant weights of at most 8 bits, with or without blocks
    in each column, becomes a `qnn.block_matmul`. Each `take` of dequantized weights at computed indices takes stored
    weights, and then dequantizes them (`qnn.lookup`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.lookup import Table, looked_up
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.scaling.affine import Dequantize
from service.compiler.qnn.numerics.sums.bfloat16 import is_bfloat16
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array


@dataclass(frozen=True)
class _Weights:
    """The operands of a `qnn.block_matmul`, as for `ops.block_matmul`."""

    stored: Array
    scales: Array
    points: Array
    block_size: int
    bits: int


def keep_weights(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with `qnn.block_matmul` products and lookups of stored weights, and the names of these."""
    # real weights -> their integers, their type, and whether they are transposed
    stored: dict[relax.Expr, tuple[Array, QuantizedType, bool]] = {}
    found: dict[relax.Expr, _Weights] = {}
    tables: dict[relax.Expr, Table] = {}  # real weights, or a call that reads rows of them -> the stored weights
    names: list[str] = []
    for var, value, operation in graph.operations(graph.main_of(module)):
        name = getattr(getattr(value, "op", None), "name", "")
        if operation is not None and _dequantizes(operation, mode):
            constant = value_of(value.args[0])
            if constant is not None and constant.size:
                tables[var] = Table.of(constant, operation.quantized("in_type"))
            if constant is not None and constant.ndim == 2 and constant.size:
                stored[var] = constant, operation.quantized("in_type"), False
        elif name == "relax.strided_slice" and value.args[0] in tables and _is_start(value):
            ends = tuple(slice(extent) for extent in graph.shape_of(var))
            tables[var] = replace(tables[value.args[0]], stored=tables[value.args[0]].stored[ends])
            if value.args[0] in stored:
                constant, kind, _ = stored[value.args[0]]
                stored[var] = constant[ends], kind, False
        elif name == "relax.take" and value.args[0] in tables and value_of(value.args[1]) is None:
            tables[value] = tables[value.args[0]]
            names.append(str(var.name))
        elif name == "relax.permute_dims" and value.args[0] in stored and len(graph.shape_of(var)) == 2:
            constant, kind, _ = stored[value.args[0]]
            stored[var] = constant, kind, [int(axis) for axis in value.attrs.axes or (1, 0)] == [1, 0]
        elif operation is not None and _multiplies(operation) and value.args[1] in stored:
            weights = _weights(*stored[value.args[1]])
            if weights is not None:
                found[value] = weights
                names.append(str(var.name))

    def keep(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if call in tables:
            return looked_up(partial(_emit_inside, builder), tables[call], args[1], int(call.attrs.axis))
        if call not in found:
            return graph.with_args(call, args)
        weights, bias = found[call], args[2] if len(args) > 2 else None
        constants = [
            relax.const(np.ascontiguousarray(each)) for each in (weights.stored, weights.scales, weights.points)
        ]
        return ops.block_matmul(
            args[0], constants[0], constants[1], constants[2], bias, block_size=weights.block_size, bits=weights.bits
        )

    return (graph.rewrite(module, keep) if names else module), names


def _is_start(call: relax.Call) -> bool:
    """Returns true if a strided_slice selects the first elements of each axis."""
    bounds = [[int(field.value) for field in arg.fields] for arg in call.args[2:]]
    begin, _, *steps = bounds
    return not any(begin) and all(step == 1 for each in steps for step in each)


def _emit_inside(builder: relax.BlockBuilder, expr: relax.Expr) -> relax.Var:
    return graph.emit(builder, expr, f"lookup_{INSIDE}")


def _multiplies(operation: Operation) -> bool:
    return operation.name == "qnn.real_matmul" and not is_bfloat16(operation)


def _dequantizes(operation: Operation, mode: Mode) -> bool:
    """Returns true if the operator dequantizes weights as `qnn.block_matmul` does."""
    if operation.name != "qnn.dequantize" or operation.quantized("in_type").bits > 8:
        return False
    return isinstance(mode.formula(operation), Dequantize)


def _weights(stored: Array, kind: QuantizedType, transposed: bool) -> _Weights | None:
    """Returns the operands of a `qnn.block_matmul`, or None if the scales do not apply to whole blocks of a column, or
    a value exceeds the bits of its type.
    """
    rows = 1 if transposed else 0
    depth, columns = stored.shape[rows], stored.shape[1 - rows]
    size, grid = depth, (1, 1)
    if kind.blocks is not None:
        sizes = {axis: extent for axis, extent in kind.blocks if kind.grid[axis] > 1}
        size, grid = sizes.get(rows, depth), (kind.grid[0], kind.grid[1])
        if sizes.get(1 - rows, 1) != 1 or grid[1 - rows] != columns:
            return None
    elif kind.axis == rows:
        return None
    elif kind.axis is not None:
        grid = (columns, 1) if transposed else (1, columns)
    low, high = STORAGE_RANGES[kind.storage]
    if not low <= int(stored.min()) <= int(stored.max()) <= high:
        return None
    bits = 4 if kind.bits <= 4 else 8
    # the number that is added to the values to make them unsigned
    bias = 0 if kind.storage.startswith("u") else 1 << (bits - 1)
    scales = np.array(kind.scales, np.float32).reshape(grid)
    points = (np.array(kind.zero_points, np.int16).reshape(grid) + bias).astype(np.uint8)
    unsigned = (stored.astype(np.int16) + bias).astype(np.uint8)
    if transposed:
        unsigned, scales, points = unsigned.T, scales.T, points.T
    shape = (-(-depth // size), columns)
    return _Weights(unsigned, np.broadcast_to(scales, shape), np.broadcast_to(points, shape), size, bits)
