"""Dynamic quantization: the model computes the scale and the zero point of activations while it runs.

The dialect's types are constant. Stored values with a computed zero point therefore have a type with zero point 0, and
the zero point's contribution is subtracted from each sum of products: sum((x - z) * w) = sum(x * w) - z * sum(w). All
steps are int32, which wraps around, so the final sums are exact.

A computed scale or zero point has the same number of axes as its tensor, each of length 1 (`State.loose`). Every tensor
of the module has the samples along its first axis, so each of several samples is quantized separately.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import in_channels_last
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.convolution import stored_filters
from service.compiler.importers.onnx.operators.matrix import of_rows, rows_of_columns
from service.compiler.importers.onnx.operators.windows import Windows
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_STORAGES = ("int8", "uint8")
_STEPS = 255.0
_LARGEST_IMAGE = 1 << 24


def dynamic_quantize_linear(node: Node) -> tuple[Value, ...]:
    """Input: x. Returns x as uint8, the scale and the zero point, for a range that includes zero (core/util/qmath.h,
    GetQuantizationParameter).
    """
    stored, scale, point = quantized_dynamically(node, node.expr(0), node.dtype(0))
    node.state.loose |= {name for name in node.operator.outputs[1:] if name}
    return stored, scale, point


def quantized_dynamically(
    node: Node, x: relax.Expr, dtype: str, *, together: bool = False
) -> tuple[relax.Var, relax.Var, relax.Var]:
    """Returns x as uint8, the scale and the zero point. `together` is true if x is always quantized as a whole: its
    first axis is then never an axis of samples.
    """
    if dtype != "float32":
        node.unsupported(f"quantizes {dtype}; only float32 can be compiled")
    shape, inside = shape_of(x), Real(node.emit, x)
    is_sample = not together and len(shape) > 1 and shape[0] == 1
    axes = list(range(int(is_sample), len(shape)))  # the axes of one sample
    low = inside.apply(relax.op.minimum, inside(relax.op.min(x, axis=axes, keepdims=True)), 0.0)
    high = inside.apply(relax.op.maximum, inside(relax.op.max(x, axis=axes, keepdims=True)), 0.0)
    steps = inside.apply(relax.op.divide, inside.apply(relax.op.subtract, high, low), _STEPS)
    is_empty = inside(relax.op.equal(high, low))
    scale = node.emit(inside.call(relax.op.where, is_empty, 1.0, steps), INSIDE if together else "scale")
    position = inside.apply(relax.op.subtract, 0.0, inside.apply(relax.op.divide, low, scale))
    real_point = inside(relax.op.round(_in_range(inside, position)))
    ratio = inside(relax.op.round(inside.apply(relax.op.divide, x, scale)))
    stored = node.emit(relax.op.astype(_in_range(inside, inside.apply(relax.op.add, ratio, real_point)), "uint8"))
    return stored, scale, node.emit(relax.op.astype(real_point, "uint8"), "zero_point")


def _in_range(inside: Real, x: relax.Expr) -> relax.Expr:
    """Returns x, clamped to the range of uint8."""
    return inside.apply(relax.op.minimum, inside.apply(relax.op.maximum, x, 0.0), _STEPS)


def matmul_integer(node: Node) -> Value:
    """Inputs: A, B, a_zero_point, b_zero_point. Multiplies `[…, K]` by constant `[K, N]`, giving int32."""
    return integer_product(node, node.expr(0), node.dtype(0), weights=1, point=_point(node, 2), weight_point=3)


def matmul_integer_to_float(node: Node) -> Value:
    """Inputs: A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias (com.microsoft). Returns float32."""
    sums = integer_product(node, node.expr(0), node.dtype(0), weights=1, point=_point(node, 4), weight_point=5)
    return _scaled(node, sums, node.expr(2), weight_scale=3, bias=6)


def dynamic_quantize_matmul(node: Node) -> Value:
    """Inputs: A, B, b_scale, b_zero_point, bias (com.microsoft). Multiplies float32 by stored weights; the result is
    float32.
    """
    stored, scale, point = quantized_dynamically(node, node.expr(0), node.dtype(0))
    sums = integer_product(node, stored, "uint8", weights=1, point=point, weight_point=3)
    return _scaled(node, sums, scale, weight_scale=2, bias=4)


def _scaled(node: Node, sums: relax.Var, scale: relax.Expr, weight_scale: int, bias: int) -> relax.Var:
    """Returns float(sum) * (s_a * s_b) + bias (mlas/lib/qpostprocessor.cpp)."""
    product = node.emit(relax.op.multiply(scale, node.expr(weight_scale)), "scale")
    real = node.emit(relax.op.astype(sums, "float32"), "real")
    scaled = node.emit(relax.op.multiply(real, product), "scaled")
    return node.emit(relax.op.add(scaled, node.expr(bias))) if node.has(bias) else scaled


def _point(node: Node, index: int) -> int | relax.Expr:
    """Returns the zero point of the activations: a number, or a computed tensor with axes of length 1."""
    if not node.has(index):
        return 0
    known = node.known_value(index)
    if known is None:
        return node.expr(index)
    if known.size != 1:
        node.unsupported(f"has {known.size} zero points for its activations, not one", node.name(index))
    return int(known.reshape(-1)[0])


def integer_product(
    node: Node, x: relax.Expr, storage: str, *, weights: int, point: int | relax.Expr, weight_point: int
) -> relax.Var:
    """Returns sum((x - point) * (w - its zero point)) as int32 `[…, N]`, for constant weights: `[K, N]`, or several
    such matrices `[…, K, N]`. As in NumPy, an operand of one dimension is a row or a column; the result does not have
    its axis.
    """
    data, shape, other = node.constant_data(weights), shape_of(x), node.shape(weights)
    fits = bool(shape) and len(other) > 0 and shape[-1] == other[max(len(other) - 2, 0)]
    node.require(fits, f"cannot multiply {list(shape)} by {list(other)}")
    if data is None or (node.has(weight_point) and node.constant_data(weight_point) is None):
        return _product_of_two(node, x, storage, weights=weights, point=point, weight_point=weight_point)
    if data.ndim != 2 or len(shape) == 1:
        return _product_of_several(node, x, storage, weights=weights, point=point, weight_point=weight_point)
    in_type, weight_type = _types(node, storage, point, weights, weight_point, units=data.shape[1])
    matrix = node.constant(weights, rows_of_columns)
    sums = of_rows(node, x, matrix, None, (in_type, weight_type), lambda sums, _axis: sums)
    return _without(node, sums, point, _sums(data.T, weight_type))


def sums_of_rows(
    node: Node, real: Real, weights: Array, weight_point: int
) -> Callable[[relax.Expr, relax.Expr], relax.Expr]:
    """Returns a function that takes rows `[M, K]` of uint8 and their computed zero point. It returns sum((x - point) *
    (w - weight_point)) as int32 `[M, N]`, for constant weights `[K, N]` of 8 bits. All of its calls use the same
    constants.
    """
    types = QuantizedType("uint8", (1.0,)), QuantizedType(weights.dtype.name, (1.0,), (weight_point,))
    matrix, totals = node.literal(rows_of_columns(weights)), node.literal(_sums(weights.T, types[1]))

    def multiply(rows: relax.Expr, point: relax.Expr) -> relax.Expr:
        sums = real(ops.dense(rows, matrix, None, *types))
        wide = real(relax.op.astype(point, "int32"))
        return real(relax.op.subtract(sums, real(relax.op.multiply(wide, totals))))

    return multiply


def _product_of_two(
    node: Node, x: relax.Expr, storage: str, *, weights: int, point: int | relax.Expr, weight_point: int
) -> relax.Var:
    """Computes `integer_product` if the weights or their zero points are computed at run time. The products of stored
    values are exact, so that the contribution of each zero point can be subtracted later.
    """
    y, second = node.expr(weights), node.dtype(weights)
    for dtype, what in ((storage, "activations"), (second, "weights")):
        if dtype not in _STORAGES:
            node.unsupported(f"has {what} of {dtype}; only 8 bits can be compiled")
    shapes = shape_of(x), shape_of(y)
    lhs = x if len(shapes[0]) > 1 else node.emit(relax.op.reshape(x, (1, *shapes[0])), "row")
    rhs = y if len(shapes[1]) > 1 else node.emit(relax.op.reshape(y, (*shapes[1], 1)), "column")
    columns = shape_of(rhs)[-1]
    sums = node.emit(ops.matmul(lhs, rhs, QuantizedType(storage, (1.0,)), QuantizedType(second, (1.0,))), "accumulate")
    if node.has(weight_point):
        count = math.prod(node.shape(weight_point))
        node.require_supported(count in (1, columns), f"has {count} zero points for {columns} columns of weights")
        given = node.emit(relax.op.astype(node.expr(weight_point), "int32"), "point")
        # Rows of the first operand, each with its own zero points, would need another axis.
        other = node.emit(relax.op.reshape(given, (1, count)), "point")
        totals = _less_points(node, lhs, [-1], point)
        sums = node.emit(relax.op.subtract(sums, node.emit(relax.op.multiply(totals, other), "part")), "moved")
    if not isinstance(point, int) or point:
        own = node.literal(np.array(point, np.int32)) if isinstance(point, int) else _wide_scalar(node, point)
        totals = _less_points(node, rhs, [-2], 0)
        sums = node.emit(relax.op.subtract(sums, node.emit(relax.op.multiply(totals, own), "part")), "moved")
    whole = shape_of(sums)
    kept = (*whole[:-2], *(whole[-2:-1] if len(shapes[0]) > 1 else ()), *(whole[-1:] if len(shapes[1]) > 1 else ()))
    return node.emit(sums if kept == whole else relax.op.reshape(sums, kept))


def _wide_scalar(node: Node, point: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.astype(node.emit(relax.op.reshape(point, (1, 1)), "point"), "int32"), "wide_point")


def _less_points(node: Node, x: relax.Expr, axes: list[int], point: int | relax.Expr) -> relax.Expr:
    """Returns the sums of stored values less their zero point along some axes, int32, with these axes of length 1."""
    rank = len(shape_of(x))
    kept = [axis % rank for axis in axes]
    total = node.emit(relax.op.sum(node.emit(relax.op.astype(x, "int32"), "wide"), axis=kept, keepdims=True), "totals")
    count = math.prod(shape_of(x)[axis] for axis in kept)
    if isinstance(point, int):
        return node.emit(relax.op.subtract(total, node.literal(np.array(count * point, np.int32))), "totals")
    own = node.emit(relax.op.multiply(_wide_scalar(node, point), node.literal(np.array(count, np.int32))), "part")
    return node.emit(relax.op.subtract(total, own), "totals")


def _product_of_several(
    node: Node, x: relax.Expr, storage: str, *, weights: int, point: int | relax.Expr, weight_point: int
) -> relax.Var:
    """Computes `integer_product` if x is a row or the weights are not a single matrix. The matrices broadcast and have
    one zero point.
    """
    data, shape = node.data(weights), shape_of(x)
    matrices = data[:, np.newaxis] if data.ndim == 1 else data
    points = np.unique(node.data(weight_point)) if node.has(weight_point) else np.zeros(1, data.dtype)
    if points.size != 1:
        node.unsupported(
            f"has {points.size} zero points for weights {list(data.shape)}, not one", node.name(weight_point)
        )
    in_type, weight_type = _types(node, storage, point, weights, weight_point, units=matrices.shape[-1])
    if weight_type.axis is not None:
        weight_type = QuantizedType(weight_type.storage, (1.0,), weight_type.zero_points[:1])
    rows = node.emit(relax.op.reshape(x, (1, *shape)), "row") if len(shape) == 1 else x
    sums = node.emit(ops.matmul(rows, node.literal(matrices), in_type, weight_type), "accumulate")
    total = (matrices.astype(np.int64) - int(points[0])).sum(axis=-2, keepdims=True)
    result = _without(node, sums, point, total.astype(np.int32))
    whole = shape_of(result)
    kept = (*whole[:-2], *(whole[-2:-1] if len(shape) > 1 else ()), *(whole[-1:] if data.ndim > 1 else ()))
    return result if kept == whole else node.emit(relax.op.reshape(result, kept))


def conv_integer(node: Node) -> Value:
    """Inputs: x, w, x_zero_point, w_zero_point. Returns int32 `[N, O, OH, OW]`."""
    windows, data, point = Windows(node, weights=1), node.constant_data(1), _point(node, 2)
    filters = node.shape(1)
    windows.check_groups(filters)
    in_type, weight_type = _types(node, node.dtype(0), point, 1, 3, units=filters[0])
    x = _padded(node, windows, point) if isinstance(point, relax.Expr) else windows.image(node.expr(0))
    options = windows.options() | ({"padding": (0, 0, 0, 0)} if isinstance(point, relax.Expr) else {})
    weight = stored_filters(node, windows, 1)

    def body(image: relax.Var) -> relax.Expr:
        return ops.conv2d(image, weight, None, in_type, weight_type, **options)

    sums = in_channels_last(node.emit, x, body)
    if data is not None:
        return windows.restored(_without(node, sums, point, _sums(data, weight_type).reshape(-1, 1, 1)))
    rows = _less_points(node, node.expr(1), list(range(1, len(filters))), weight_type.zero_points[0])
    return windows.restored(_without(node, sums, point, node.emit(relax.op.reshape(rows, (-1, 1, 1)), "rows")))


def _padded(node: Node, windows: Windows, point: relax.Expr) -> relax.Expr:
    """Pads the image with its zero point. First pads it with zeros, and then adds the zero point at the padded
    positions.
    """
    top, left, bottom, right = windows.padding
    if not any(windows.padding):
        return windows.image(node.expr(0))
    if math.prod(windows.size) > _LARGEST_IMAGE:
        node.unsupported(
            f"pads an image of {windows.size[0]} by {windows.size[1]} with a computed zero point, which is too large"
        )
    widths = [0, 0, 0, 0, top, bottom, left, right]
    image, dtype = windows.image(node.expr(0)), node.dtype(0)
    inside = np.zeros((1, 1, *windows.size), dtype)
    border = np.pad(inside, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=1)
    fill = node.emit(
        relax.op.multiply(node.literal(border), node.emit(relax.op.reshape(point, (1, 1, 1, 1)))), "border"
    )
    return node.emit(relax.op.add(node.emit(relax.op.nn.pad(image, widths), "padded"), fill), "filled")


def _types(
    node: Node, storage: str, point: int | relax.Expr, weights: int, weight_point: int, units: int
) -> tuple[QuantizedType, QuantizedType]:
    """Returns the types of the activations and the weights, with scales of 1."""
    stored = node.dtype(weights)
    for dtype, what in ((storage, "activations"), (stored, "weights")):
        if dtype not in _STORAGES:
            node.unsupported(f"has {what} of {dtype}; only 8 bits can be compiled")
    points = node.data(weight_point).reshape(-1) if node.has(weight_point) else np.zeros(1, stored)
    node.require(points.dtype.name == stored, f"has weights of {stored}, but zero points of {points.dtype.name}")
    node.require(
        points.size == 1 or np.unique(points).size == 1 or points.size == units,
        f"has {points.size} zero points for {units} columns of weights",
    )
    points = points[:1] if np.unique(points).size == 1 else points
    in_type = QuantizedType(storage, (1.0,), (point if isinstance(point, int) else 0,))
    each = tuple(int(value) for value in points)
    weight_type = QuantizedType(stored, (1.0,) * len(each), each, axis=None if len(each) == 1 else 0)
    return in_type, weight_type


def _sums(weights: Array, weight_type: QuantizedType) -> Array:
    """Returns the sum of each filter's weights less their zero point, `[O]` int32."""
    rows = weights.reshape(len(weights), -1).astype(np.int64)
    points = np.array(weight_type.zero_points, np.int64).reshape(-1, 1)
    return np.asarray((rows - points).sum(axis=1).astype(np.int32))


def _without(node: Node, sums: relax.Var, point: int | relax.Expr, rows: Array | relax.Expr) -> relax.Var:
    """Returns `sums` less the contribution of the computed zero point, which is `rows` times the zero point."""
    if isinstance(point, int):
        return node.emit(sums)
    if isinstance(rows, np.ndarray):
        rows = node.literal(rows)
    scalar = node.emit(relax.op.reshape(point, [1] * len(shape_of(sums))), "point")
    wide = node.emit(relax.op.astype(scalar, "int32"), "wide_point")
    return node.emit(relax.op.subtract(sums, node.emit(relax.op.multiply(wide, rows), "moved")))
