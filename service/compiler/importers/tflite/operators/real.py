"""Operators on float32 activations, in the parts of a quantized model that are between conversions.

Sums, products and similar operators round once, as IEEE 754 defines; LiteRT's operators do the same. Sums of products
(`qnn.real_matmul`, `qnn.real_conv2d`) and functions such as exp (`importers/real.py`) are float32. Long sums
along axes other than the last are computed in float64 and rounded once. LiteRT's results differ from all of these by a
few units in the last place. Weights are float32, too; `hybrid` converts 8-bit weights with real activations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.builder import pooling
from service.compiler.importers.real import Real
from service.compiler.importers.resizing import PLACES, bilinear
from service.compiler.importers.tflite.geometry import VALID
from service.compiler.importers.tflite.model import Quantization, Tensor
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.batch_matmul import operands
from service.compiler.importers.tflite.operators.convolution import (
    bias_of_reals,
    conv_options,
    filters_and_groups,
)
from service.compiler.importers.tflite.operators.elementwise import clamped, require_one_dtype
from service.compiler.importers.tflite.operators.pooling import windows_of
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

STORED_WEIGHTS = ("int8", "uint8")  # types of weights that stay stored
_MOST_NORMALIZED = 4  # dimensions that L2_NORMALIZATION supports
_MOST_ADDED = 1 << 8  # limit of the elements of an average, each of which becomes an operator
Convert = Callable[[Node], relax.Expr]
Binary = Callable[[relax.Expr, relax.Expr], relax.Call]


def binary(make: Binary) -> Convert:
    """Returns the converter of arithmetic with a fused activation. A scalar operand broadcasts as in NumPy."""

    def convert(node: Node) -> relax.Expr:
        require_one_dtype(node)
        return clamped(node, node.emit(make(node.expr(0), node.expr(1)), "sum"), node.activation())

    return convert


def plain(make: Callable[..., relax.Call]) -> Convert:
    """Returns the converter of an operator without options that Relax also has."""

    def convert(node: Node) -> relax.Expr:
        require_one_dtype(node)
        return node.emit(make(*node.exprs()))

    return convert


def extreme(compare: Binary) -> Convert:
    """Returns a converter to the first operand if comparing it with the second gives true, and otherwise to the second
    operand. This also defines the result for NaN (`MaximumOp` in tflite/kernels/maximum_minimum.cc).
    """

    def convert(node: Node) -> relax.Expr:
        require_one_dtype(node)
        lhs, rhs = node.expr(0), node.expr(1)
        return node.emit(relax.op.where(node.emit(compare(lhs, rhs), "first"), lhs, rhs))

    return convert


def clamp(node: Node) -> relax.Expr:
    return clamped(node, node.expr(0), node.operator.name)


def squared_difference(node: Node) -> relax.Expr:
    difference = node.emit(relax.op.subtract(node.expr(0), node.expr(1)), "difference")
    return node.emit(relax.op.multiply(difference, difference))


def leaky_relu(node: Node) -> relax.Expr:
    alpha = float(cast(float, node.option("alpha")))
    if not math.isfinite(alpha):
        node.unsupported(f"has alpha {alpha}, which is not finite")
    return node.emit(real.sloped(Real(node.emit, node.expr(0)), relax.const(np.array(alpha, np.float32))))


def prelu(node: Node) -> relax.Expr:
    """Converts PRELU; the second operand is the slope, and broadcasts."""
    require_one_dtype(node)
    return node.emit(real.sloped(Real(node.emit, node.expr(0)), node.expr(1)))


def max_pool2d(node: Node) -> relax.Expr:
    made = pooling.largest(Real(node.emit, node.expr(0)), real_windows(node))
    return clamped(node, node.emit(made), node.activation())


def average_pool2d(node: Node) -> relax.Expr:
    """Converts AVERAGE_POOL_2D: the average of the elements inside the image (`AveragePool` in
    tflite/kernels/internal/reference/pooling.h). If there is one large window, it is converted to a mean.
    """
    x, size = Real(node.emit, node.expr(0)), (node.int_option("filter_height"), node.int_option("filter_width"))
    is_whole = size == node.image()[1:3] and node.int_option("padding") == VALID
    is_mean = is_whole and math.prod(size) > _MOST_ADDED
    made = x.mean(x.x, (1, 2)) if is_mean else pooling.average(x, real_windows(node))
    return clamped(node, node.emit(made), node.activation())


def real_windows(node: Node) -> pooling.Windows:
    """Returns the windows of a pooling of real values, each element of which becomes an operator."""
    _, height, width, _ = node.image()
    found = windows_of(node)
    size, padding = found.size, found.padding
    fits = size[0] <= height + padding[0] + padding[2] and size[1] <= width + padding[1] + padding[3]
    node.require(fits, f"has windows of {list(size)}, which do not fit an image of {height} by {width}", node.input(0))
    pooling.check_places(node, math.prod(size))
    return found


def resize_bilinear(node: Node) -> relax.Expr:
    """Resizes `[N, H, W, C]` (tflite/kernels/internal/reference/resize_bilinear.h). Results differ from the kernel's
    only by rounding.
    """
    shape, size = node.input(0).shape, node.integers(1).reshape(-1).tolist()
    node.require(len(shape) == 4 and len(size) == 2 and min(size) >= 1, f"cannot resize shape {list(shape)} to {size}")
    node.expect_shape((shape[0], *size, shape[3]))
    node.reserve(48 * sum(size))
    corners, centers = bool(node.option("align_corners")), bool(node.option("half_pixel_centers"))
    node.require(not (corners and centers), "sets both align_corners and half_pixel_centers")
    places_of = PLACES["align_corners" if corners else "half_pixel" if centers else "asymmetric"]
    positions = [
        places_of(np.arange(after, dtype=np.float32), np.float32(after) / np.float32(before), before, after)
        for before, after in zip(shape[1:3], size, strict=True)
    ]
    return node.emit(bilinear(Real(node.emit, node.expr(0)), (1, 2), positions))


def function(of: real.Function) -> Convert:
    """Returns the converter of a function of each value."""

    def convert(node: Node) -> relax.Expr:
        return node.emit(of(Real(node.emit, node.expr(0))))

    return convert


def gelu(node: Node) -> relax.Expr:
    return node.emit(real.gelu(Real(node.emit, node.expr(0)), approximate=bool(node.option("approximate"))))


def batch_matmul(node: Node) -> relax.Expr:
    return node.emit(ops.real_matmul(*operands(node)))


def softmax(node: Node) -> relax.Expr:
    """Converts SOFTMAX, over the last axis."""
    beta = float(cast(float, node.option("beta")))
    node.require(math.isfinite(beta) and beta > 0, f"has beta {beta}, which must be positive and finite")
    node.require(bool(node.input(0).shape), "has a scalar input", node.input(0))
    return node.emit(real.softmax(Real(node.emit, node.expr(0)), len(node.input(0).shape) - 1, beta))


def l2_normalization(node: Node) -> relax.Expr:
    """Converts L2_NORMALIZATION, over the last axis; its kernel has a fixed epsilon (tflite/kernels/l2norm.cc)."""
    shape = node.input(0).shape
    node.require(
        1 <= len(shape) <= _MOST_NORMALIZED,
        f"has an input of shape {list(shape)}; it must have 1 to {_MOST_NORMALIZED} dimensions",
        node.input(0),
    )
    if node.activation() != "NONE":
        node.unsupported("has a fused activation, which its kernel refuses")
    return node.emit(real.l2_normalize(Real(node.emit, node.expr(0)), epsilon=1e-6))


def mean(node: Node) -> relax.Expr:
    x, axes, keepdims = node.reduced()
    return node.emit(Real(node.emit, x).mean(x, axes, keepdims=keepdims))


def sum_(node: Node) -> relax.Expr:
    x, axes, keepdims = node.reduced()
    return node.emit(Real(node.emit, x).total(x, axes, keepdims=keepdims))


def convolution(*, depthwise: bool) -> Convert:
    """Returns the converter of CONV_2D or DEPTHWISE_CONV_2D."""

    def convert(node: Node) -> relax.Expr:
        _, groups = filters_and_groups(node, depthwise=depthwise)
        kernel = _weights_in_order(node, (3, 1, 2, 0) if depthwise else (0, 1, 2, 3))
        bias = bias_of_reals(node, shape_of(kernel)[0])
        call = ops.real_conv2d(node.expr(0), kernel, bias, groups=groups, **conv_options(node))
        return clamped(node, node.emit(call, "convolution"), node.activation())

    return convert


def fully_connected(node: Node) -> relax.Expr:
    """Converts FULLY_CONNECTED: rows times constant weights."""
    weights, shape = node.input(1), node.input(0).shape
    node.require(len(weights.shape) == 2, f"has weights of shape {list(weights.shape)}, not two dimensions", weights)
    units, depth = weights.shape
    rows = math.prod(shape) // depth
    node.require(
        rows * depth == math.prod(shape), f"has an input of shape {list(shape)}, but its weights have rows of {depth}"
    )
    keep_dims = bool(node.option("keep_num_dims"))
    x, kept = node.expr(0), (*shape[:-1], units) if keep_dims else (rows, units)
    if len(shape) < 2 or shape[-1] != depth or not keep_dims:
        x = node.emit(relax.op.reshape(x, (rows, depth)), "rows")
    bias = bias_of_reals(node, units)
    made = node.emit(ops.real_matmul(x, _weights_in_order(node, (1, 0)), bias), "products")
    if shape_of(made) != kept:
        made = node.emit(relax.op.reshape(made, kept))
    return clamped(node, made, node.activation())


def _weights_in_order(node: Node, order: tuple[int, ...]) -> relax.Expr:
    """Returns the weights with their axes in `order`. Weights that the file stores as integers stay stored, and are
    dequantized in the module: a later pass lets products read them (`qnn.passes.weights`).
    """
    stored = node.stored(1)
    if stored is None:
        return relax.const(np.ascontiguousarray(_weights(node).transpose(order)))
    values, kind = stored
    axis = None if kind.axis is None else order.index(kind.axis)
    moved = relax.const(np.ascontiguousarray(values.transpose(order)))
    return node.emit(ops.dequantize(moved, replace(kind, axis=axis)), "weights")


def stored_type(tensor: Tensor, quantization: Quantization) -> QuantizedType:
    """Returns the type of a constant of `STORED_WEIGHTS`."""
    storage = f"int{tensor.packed_bits}" if tensor.packed_bits else tensor.dtype
    axis = quantization.axis if quantization.per_axis else None
    return QuantizedType(storage, quantization.scales, quantization.zero_points, axis=axis)


def _weights(node: Node) -> Array:
    """Returns float32 weights in the layout of the file."""
    data = node.data(1)
    if data.dtype != np.float32:
        node.unsupported(f"has weights of {data.dtype}, not float32", node.input(1))
    node.reserve(data.nbytes)
    return data


def real_values(node: Node, data: Array, quantization: Quantization) -> Array:
    """Returns the real values of stored values, as float32."""
    node.reserve(4 * data.size)
    along = quantization.axis if quantization.per_axis else None
    shape = [-1 if index == along else 1 for index in range(data.ndim)]
    points = np.array(quantization.zero_points, np.int64).reshape(shape)
    scales = np.array(quantization.scales, np.float32).reshape(shape)
    return np.asarray((data.astype(np.int64) - points).astype(np.float32) * scales)
