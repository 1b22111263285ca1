"""Tensors with a number of rows that depends on the data, such as the boxes that NonMaxSuppression selects.

Every tensor of a build has a fixed shape. Such a tensor has as many rows as there can be at most, and `State.free`
contains the number of rows that count. Operators that process each row on its own keep it; any other operator is
refused. An output of the model with such rows is filled: the rows after the last contain -1, or 0 if they are real or
unsigned. A further output, whose name ends with `.count`, contains the number of rows.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.node import Node, State
from service.compiler.importers.qdq import Operator
from service.compiler.qnn import graph
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.graph import shape_of
from service.core.errors import Unsupported
from service.core.verification.free_rows import COUNT

_ELEMENTWISE = frozenset(
    {
        *("Abs", "Add", "Cast", "Ceil", "Clip", "DequantizeLinear", "Div", "Equal", "Exp", "Floor", "Greater"),
        *("Identity", "Less", "Max", "Min", "Mul", "Neg", "Not", "QuantizeLinear", "Relu", "Round", "Sigmoid", "Sub"),
        *("Where",),
    }
)


def keep_rows_free(state: State, operator: Operator) -> None:
    """Records in `state.free` that the output of a converted operator has a free axis, if an operand has one.

    Raises:
        Unsupported: the operator combines rows, so that the rows after the last would change its result.
    """
    free = {index: state.free[name] for index, name in enumerate(operator.inputs) if name in state.free}
    if not free:
        return
    node = Node(state, operator)
    axes = {_axis(node, index, axis) for index, (_, axis) in free.items()}
    counts = {count for count, _ in free.values()}
    if len(counts) > 1:
        node.unsupported("combines boxes of two NonMaxSuppressions, whose numbers depend on the data")
    axis = axes.pop()
    if axes or axis is None:
        node.unsupported(
            "combines rows whose number depends on the data (they come from a NonMaxSuppression)",
            hint="cut the model before it, or export the model without it (nms=False)",
        )
    for name in filter(None, operator.outputs):
        state.free[name] = (counts.copy().pop(), axis)


def _axis(node: Node, index: int, axis: int) -> int | None:
    """Returns the axis of the output that corresponds to an axis of an operand, or None if the operator does not
    process each position of that axis on its own.
    """
    kind, shape = node.operator.op_type, node.shape(index)
    output = node.state.values[node.output]
    after = output.shape if isinstance(output, np.ndarray) else shape_of(output)
    if kind in _ELEMENTWISE:
        return len(after) - (len(shape) - axis)
    if kind == "Gather":
        along = node.axis(node.attribute("axis", 0), len(node.shape(0)))
        if index == 1:
            return along + axis
        return None if along == axis else axis if axis < along else axis - 1 + len(node.shape(1))
    if kind == "GatherND" and index == 1 and not node.attribute("batch_dims", 0):
        return axis if axis < len(shape) - 1 else None
    if kind in ("Slice", "Concat", "Softmax", "Split") and len(after) == len(shape):
        return axis if axis not in _named(node, len(shape)) else None
    if kind == "Transpose":
        order = node.axes(node.attribute("perm", tuple(range(len(shape)))[::-1]), len(shape))
        return order.index(axis)
    if kind in ("Squeeze", "Unsqueeze", "Reshape", "Flatten"):
        return _reshaped(shape, after, axis)
    return None


def _named(node: Node, rank: int) -> set[int]:
    """Returns the axes along which an operator moves or combines elements."""
    if node.operator.op_type == "Slice":
        named = node.integers(3) if node.has(3) else tuple(range(len(node.integers(1))))
        return set(node.axes(named, rank))
    return {node.axis(node.attribute("axis", -1 if node.operator.op_type == "Softmax" else 0), rank)}


def _reshaped(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int | None:
    """Returns the axis with the same size and the same number of elements before and after it."""
    ahead, behind = int(np.prod(before[:axis])), int(np.prod(before[axis + 1 :]))
    for position, size in enumerate(after):
        sides = (int(np.prod(after[:position])), int(np.prod(after[position + 1 :])))
        if size == before[axis] and sides == (ahead, behind):
            return position
    return None


def filled(state: State, name: str, value: relax.Expr) -> relax.Expr:
    """Returns an output in which the rows after the last contain -1 or 0.

    Raises:
        Unsupported: the rows are along an axis that `core.verification.free_rows` does not find.
    """
    count, axis = state.free[name]
    shape, dtype = shape_of(value), np.dtype(str(value.ty.dtype))
    if any(size != 1 for size in shape[:axis]):
        label = shortened(name)
        raise Unsupported(
            f"the output {label} of {list(shape)} has rows whose number depends on the data after axes of other sizes",
            tensor=label,
            hint="transpose it so that these rows come first",
        )
    rows = np.arange(shape[axis], dtype=np.int64).reshape(-1, *[1] * (len(shape) - axis - 1))
    counted = graph.emit(state.builder, relax.op.less(relax.const(rows, "int64"), count), f"counted_{INSIDE}")
    if dtype.kind == "b":
        return graph.emit(state.builder, relax.op.logical_and(counted, value), f"filled_{INSIDE}")
    fill = relax.const(np.array(-1 if dtype.kind == "i" else 0, dtype), dtype.name)
    return graph.emit(state.builder, relax.op.where(counted, value, fill), f"filled_{INSIDE}")


def notice_of(name: str) -> str:
    """Returns a sentence about an output with free rows."""
    label = shortened(name)
    return (
        f"the output {label} has as many rows as there can be at most: {label}{COUNT} contains their number, and the "
        "rows after the last are -1, or 0 if they are real"
    )
