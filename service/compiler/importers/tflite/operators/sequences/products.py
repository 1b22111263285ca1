"""Products of rows with constant weights of float32 or int8, and activations, for recurrent layers of real values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.builder.dynamic import STORED, Ranges
from service.compiler.importers.real import Real, logistic
from service.compiler.importers.tflite.activations import NAMES
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.elementwise import clamped
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.dynamic import DENSE
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

Product = Callable[[relax.Expr], relax.Expr]
Activation = Callable[[relax.Expr], relax.Expr]
_MOST_STEPS = 256  # each step is unrolled


def product(node: Node, positions: Sequence[int]) -> Product:
    """Returns the function that multiplies rows `[R, K]` with the weights at `positions`, `[O, K]` each: `[R, O * n]`.
    All calls of the function use the same constants.
    """
    tensors = [node.input(position) for position in positions]
    shapes = {tensor.shape for tensor in tensors}
    node.require(len(shapes) == 1 and len(tensors[0].shape) == 2, f"has weights of shapes {sorted(shapes)}")
    data = [node.data(position) for position in positions]
    dtypes = sorted({each.dtype.name for each in data})
    node.reserve(sum(each.nbytes for each in data))
    stacked = np.concatenate(data)
    if dtypes == ["float32"]:
        matrix = relax.const(np.ascontiguousarray(stacked.T))
        return lambda rows: node.emit(ops.real_matmul(rows, matrix), "products")
    if dtypes != ["int8"]:
        node.unsupported(f"has weights of {', '.join(dtypes)}; float32 and int8 can be compiled", tensors[0])
    types = [node.per_tensor(tensor) for tensor in tensors]
    node.require_supported(not any(each.zero_point for each in types), "has weights whose zero point is not 0")
    scales = tuple(np.repeat([each.scale for each in types], tensors[0].shape[0]).tolist())
    weight_type = QuantizedType("int8", scales, (0,) * len(scales), axis=0)
    weights, symmetric = relax.const(stacked), not node.option("asymmetric_quantize_inputs")

    def hybrid(rows: relax.Expr) -> relax.Expr:
        ranges = Ranges(node, rows, [1], DENSE, symmetric=symmetric)
        sums = node.emit(ops.dense(ranges.quantized(), weights, None, STORED, STORED), "sums")
        return node.emit(ranges.scaled(sums, stacked, weight_type, None), "products")

    return hybrid


def vector(node: Node, position: int, size: int) -> Array:
    """Returns constant values `[size]` in float32; int8 ones are converted."""
    tensor, data = node.input(position), node.data(position)
    node.require(data.shape == (size,), f"has a vector of shape {list(data.shape)}, not {[size]}", tensor)
    if data.dtype == np.float32:
        return data
    node.require(data.dtype == np.int8, f"has a vector of {data.dtype}", tensor)
    return np.asarray(data.astype(np.float32) * np.float32(node.per_tensor(tensor).scale))


def activation(node: Node) -> Activation:
    """Returns the fused activation, which may also be tanh or the logistic function."""
    value = node.int_option("fused_activation_function")
    name = NAMES.get(value, f"number {value}")
    if name == "TANH":
        return lambda x: node.emit(ops.real_function("tanh", x), "tanh")
    if name == "SIGN_BIT":
        node.unsupported("has the fused activation SIGN_BIT")
    bounding = node.activation()
    return lambda x: clamped(node, x, bounding)


def sigmoid(node: Node, x: relax.Expr) -> relax.Expr:
    return node.emit(logistic(Real(node.emit, x)), "sigmoid")


def steps_of(node: Node, x: relax.Expr, *, time_major: bool) -> list[relax.Expr]:
    """Returns the rows `[N, K]` of each step of an input `[N, T, K]`, or `[T, N, K]` if it is time-major."""
    shape = shape_of(x)
    node.require(len(shape) == 3, f"has an input of shape {list(shape)}, not three dimensions", node.input(0))
    axis = 0 if time_major else 1
    if shape[axis] > _MOST_STEPS:
        node.unsupported(f"has {shape[axis]} steps; at most {_MOST_STEPS} can be compiled", node.input(0))
    kept = [size for index, size in enumerate(shape) if index != axis]
    parts = (
        x if shape[axis] == 1 else node.emit(relax.op.strided_slice(x, [axis], [step], [step + 1]), "part")
        for step in range(shape[axis])
    )
    return [node.emit(relax.op.reshape(part, kept), "rows") for part in parts]


def join_steps(node: Node, steps: Sequence[relax.Expr], *, time_major: bool) -> relax.Expr:
    """Returns the steps `[N, O]` as `[N, T, O]`, or `[T, N, O]` if the operator is time-major."""
    rows, width = shape_of(steps[0])
    axis, shape = (0, (1, rows, width)) if time_major else (1, (rows, 1, width))
    cells = [node.emit(relax.op.reshape(step, shape), "step") for step in steps]
    return cells[0] if len(cells) == 1 else node.emit(relax.op.concat(cells, axis))


def state(node: Node, position: int, rows: int, width: int) -> relax.Expr:
    """Returns a variable as `[rows, width]`."""
    tensor = node.input(position)
    node.require(tensor.dtype == "float32", f"has a state of {tensor.dtype}", tensor)
    count = int(np.prod(tensor.shape, dtype=np.int64))
    node.require(count == rows * width, f"has a state of shape {list(tensor.shape)}, not {[rows, width]}", tensor)
    return node.emit(relax.op.reshape(node.expr(position), (rows, width)), "state")


def keep(node: Node, position: int, value: relax.Expr) -> None:
    """Stores the variable's next value."""
    node.keep(position, node.emit(relax.op.reshape(value, node.input(position).shape), "left"))


def merge_directions(node: Node, forward: relax.Expr, backward: relax.Expr) -> list[relax.Expr]:
    """Returns the outputs of both directions, joined along the last axis if the operator merges them."""
    if node.option("merge_outputs"):
        rows, _, _ = shape_of(forward)
        if rows > 1 and not node.option("time_major"):
            node.unsupported(f"merges the outputs of {rows} samples, of which LiteRT overwrites a part")
        return [node.emit(relax.op.concat([forward, backward], 2))]
    node.require(len(node.outputs) == 2, f"has {len(node.outputs)} outputs, not 2")
    return [forward, backward]
