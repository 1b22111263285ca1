"""Normalizations of float32 values, in float32. Three types equal ONNX Runtime's bit for bit: normalizations of rows
(of at least 8 columns, or 16 without a mean), of channels, and by running statistics. The others, including
SkipLayerNormalization, differ by at most a few units in the last place.

Additional outputs (a mean, a deviation) cannot be compiled. A model in which an operator reads such an output is
refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.expressions import power
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.real import PACKETS

_PER_CHANNEL_SINCE = 21  # in earlier operator sets, GroupNormalization has one scale for each group


def layer_normalization(node: Node) -> Value:
    """Inputs: X, Scale, B. Normalizes over all axes from `axis` on."""
    float32(node, *range(node.input_count))
    result = _rows(node, node.expr(0), 1, 2, centered=True)
    if not any(node.operator.outputs[1:]):
        return result, None, None
    axes = list(range(node.axis(node.attribute("axis", -1), len(node.shape(0))), len(node.shape(0))))
    made = Real(node.emit, node.expr(0))
    _, factor = _moments(made, axes, node.attribute("epsilon", 1e-5), centered=True)
    return result, made(made.mean(made.x, axes)), factor


def rms_normalization(node: Node) -> Value:
    """Inputs: X, scale. Normalizes without a mean: RMSNormalization, and ONNX Runtime's
    SimplifiedLayerNormalization.
    """
    float32(node, *range(node.input_count))
    return _rows(node, node.expr(0), 1, 2, centered=False), None


def skip_layer_normalization(node: Node) -> Value:
    """Inputs: input, skip, gamma, beta, bias (com.microsoft). Normalizes input + skip + bias, which is the fourth
    output.
    """
    total = _skipped(node, bias=4)
    return _rows(node, total, 2, 3, centered=True), None, None, total


def skip_rms_normalization(node: Node) -> Value:
    """Inputs: input, skip, gamma, bias (com.microsoft, SkipSimplifiedLayerNormalization)."""
    total = _skipped(node, bias=3)
    return _rows(node, total, 2, -1, centered=False), None, None, total


def _skipped(node: Node, bias: int) -> relax.Expr:
    """Returns the sum in float32, added from left to right, as in ONNX Runtime."""
    float32(node, *(index for index in range(node.input_count) if node.has(index)))
    total = node.emit(relax.op.add(node.expr(0), node.expr(1)), "skipped")
    return node.emit(relax.op.add(total, node.expr(bias)), "biased") if node.has(bias) else total


def _rows(node: Node, x: relax.Expr, scale: int, bias: int, *, centered: bool) -> relax.Expr:
    """Returns `x` normalized over the axes from `axis` on, multiplied by one input and added to another. The
    normalization is computed in float32, whatever `stash_type` is, as ONNX Runtime does
    (core/providers/cpu/nn/layer_norm_impl.cc).
    """
    rank = len(shape_of(x))
    axes = list(range(node.axis(node.attribute("axis", -1), rank), rank))
    # The default epsilon is 1e-12 for com.microsoft's operators, and 1e-5 for ONNX's.
    epsilon = node.attribute("epsilon", 1e-12 if "Skip" in node.operator.op_type else 1e-5)
    addend = node.expr(bias) if bias >= 0 and node.has(bias) else None
    moved, factor = _moments(Real(node.emit, x), axes, epsilon, centered=centered)
    result = node.emit(relax.op.multiply(moved, factor), INSIDE)
    if addend is None:
        return node.emit(relax.op.multiply(result, node.expr(scale)))
    return node.emit(ops.real_fma(result, node.expr(scale), addend))


def _moments(made: Real, axes: Sequence[int], epsilon: float, *, centered: bool) -> tuple[relax.Expr, relax.Expr]:
    """Returns x (less its mean if `centered` is true) and 1 / sqrt(mean of its squares + epsilon). Both are computed
    along `axes` in the order of ONNX Runtime's own kernel.
    """
    shape = shape_of(made.x)
    outer, count = shape[: axes[0]], math.prod(shape[axes[0] :])

    def of_rows(make: Callable[[relax.Expr], relax.Call], x: relax.Expr) -> relax.Expr:
        if len(axes) == 1:
            return made(make(x))
        total = made(make(made(relax.op.reshape(x, (*outer, count)))))
        return made(relax.op.reshape(total, (*outer, *[1] * len(axes))))

    moved = made.x
    if centered:
        moved = made.apply(relax.op.subtract, moved, of_rows(ops.real_mean, moved))
    squares = made.apply(relax.op.divide, of_rows(ops.real_squares, moved), float(count))
    root = made.apply(relax.op.sqrt, made.apply(relax.op.add, squares, epsilon))
    return moved, made.apply(relax.op.divide, 1.0, root)


def scaled(node: Node, x: relax.Expr, scale: relax.Expr, bias: relax.Expr | None) -> relax.Var:
    """Emits the result: `x` times `scale`, plus `bias`."""
    product = relax.op.multiply(x, scale)
    return node.emit(product if bias is None else relax.op.add(node.emit(product, INSIDE), bias))


def batch_normalization(node: Node) -> Value:
    """Inputs: X, scale, B, mean, var; the last four are `[C]`, or `[C, …]` if `spatial` is 0 (up to operator set 8).
    Normalizes by running statistics, which the model contains.

    Multiplies each channel by a factor and adds an addend, as ONNX Runtime does (core/providers/cpu/nn/batch_norm.h).
    """
    if node.attribute("training_mode", 0):
        node.unsupported("is in training mode; export the model after model.eval()")
    float32(node, *range(5))
    by_element = node.attribute("spatial", 1) == 0
    made = Real(node.emit, node.expr(0))
    if by_element:
        shape = node.shape(0)
        fits = all(node.shape(index) == shape[1:] for index in range(1, 5))
        node.require(fits, f"has statistics that do not fit {list(shape)}")
        scale, bias, mean, variance = (node.expr(index) for index in range(1, 5))
    else:
        shape = _channels(node, [node.shape(index) for index in range(1, 5)])
        scale, bias, mean, variance = (_row(node, index, len(shape)) for index in range(1, 5))
    root = made.apply(relax.op.sqrt, made.apply(relax.op.add, variance, node.attribute("epsilon", 1e-5)))
    inverse = made.apply(relax.op.divide, 1.0, root)
    factor = made.apply(relax.op.multiply, inverse, scale)
    addend = made.apply(relax.op.subtract, bias, made.apply(relax.op.multiply, mean, factor))
    if by_element:
        product = made.apply(relax.op.multiply, made.x, factor)
        return node.emit(relax.op.add(product, addend)), None, None, None, None
    return scaled(node, made.x, factor, addend), None, None, None, None


def instance_normalization(node: Node) -> Value:
    """Inputs: input, scale, B; the last two are `[C]`. Normalizes over the pixels of each channel. A channel's factor
    and addend are computed from sums that are added in Eigen's order (core/providers/cpu/nn/instance_norm.cc).

    The values of a channel are in memory, and their sum starts at the first aligned address. The squares are not in
    memory, and their sum starts at the first element.
    """
    float32(node, 0, 1, 2)
    shape = _channels(node, [node.shape(1), node.shape(2)])
    node.require(len(shape) >= 3, f"has an input of shape {list(shape)}, not [N, C, …]")
    made, pixels = Real(node.emit, node.expr(0)), math.prod(shape[2:])
    x = made(relax.op.reshape(made.x, (*shape[:2], pixels)))

    def mean(x: relax.Expr, rows: int) -> relax.Expr:
        total = made(ops.real_sum(x, axes=[2], order=PACKETS, rows=rows))
        return made.apply(relax.op.divide, total, float(pixels))

    own = mean(x, max(1, math.prod(shape[:2])))
    moved = made.apply(relax.op.subtract, x, own)
    variance = mean(made.apply(relax.op.multiply, moved, moved), 1)
    epsilon = node.attribute("epsilon", 1e-5)
    root = made.apply(relax.op.sqrt, made.apply(relax.op.add, variance, epsilon))
    scale, bias = (_row(node, position, 3) for position in (1, 2))
    factor = made.apply(relax.op.multiply, made.apply(relax.op.divide, 1.0, root), scale)
    addend = made.apply(relax.op.subtract, bias, made.apply(relax.op.multiply, own, factor))
    result = made.apply(relax.op.add, made.apply(relax.op.multiply, x, factor), addend)
    return node.emit(relax.op.reshape(result, shape))


def group_normalization(node: Node) -> Value:
    """Inputs: X, scale, bias. Normalizes over the channels and pixels of each group. Up to operator set 20, scale and
    bias are `[num_groups]`; later, they are `[C]`.
    """
    float32(node, 0, 1, 2)
    shape, groups = node.shape(0), node.attribute("num_groups", 0)
    node.require(len(shape) >= 3, f"has an input of shape {list(shape)}, not [N, C, …]")
    node.require(groups > 0 and shape[1] % groups == 0, f"cannot divide {shape[1]} channels into {groups} groups")
    rows = shape[1] if node.state.model.opset >= _PER_CHANNEL_SINCE else groups
    node.require(node.shape(1) == node.shape(2) == (rows,), f"has parameters whose length is not {rows}")
    per_group, pixels = shape[1] // groups, math.prod(shape[2:])
    split = node.emit(relax.op.reshape(node.expr(0), (shape[0], groups, per_group, pixels)), "groups")
    result = real.normalize(Real(node.emit, split), (2, 3), node.attribute("epsilon", 1e-5))
    part = (1, groups, per_group if rows == shape[1] else 1, 1)
    scale, bias = (node.emit(relax.op.reshape(node.expr(position), part), "row") for position in (1, 2))
    product = node.emit(relax.op.multiply(node.emit(result, INSIDE), scale), INSIDE)
    return node.emit(relax.op.reshape(node.emit(relax.op.add(product, bias), "moved"), shape))


def mean_variance_normalization(node: Node) -> Value:
    """Returns (x - mean) / (deviation + 1e-9) along some axes, as the function body in the operator's definition
    computes it.
    """
    float32(node)
    positions = sorted(set(node.axes(node.attribute("axes", (0, 2, 3)), len(node.shape(0)))))
    made = Real(node.emit, node.expr(0))
    moved = real.centered(made, positions)
    variance = made(made.mean(made.apply(relax.op.multiply, moved, moved), positions))
    deviation = made.apply(relax.op.add, made.apply(relax.op.sqrt, variance), 1e-9)
    return node.emit(relax.op.divide(moved, deviation))


def lp_normalization(node: Node) -> Value:
    """Returns x divided by its norm along one axis, or 0 if the norm is 0. The norm is the sum of magnitudes (p = 1) or
    the root of the sum of squares (p = 2).
    """
    float32(node)
    order = node.attribute("p", 2)
    if order not in (1, 2):
        node.unsupported(f"has p of {order}; only 1 and 2 can be compiled")
    made, axis = Real(node.emit, node.expr(0)), node.axis(node.attribute("axis", -1), len(node.shape(0)))
    terms = made.apply(relax.op.abs, made.x) if order == 1 else made.apply(relax.op.multiply, made.x, made.x)
    norm = made(made.total(terms, [axis]))
    norm = norm if order == 1 else made.apply(relax.op.sqrt, norm)
    empty = made.apply(relax.op.equal, norm, 0.0)
    return node.emit(made.call(relax.op.where, empty, 0.0, made.apply(relax.op.divide, made.x, norm)))


def local_response_normalization(node: Node) -> Value:
    """Divides each pixel by a power of the squares in the channels around it: x / (bias + alpha / size * sum) ** beta.

    The sum of a channel is that of the channel before, plus the square of the next channel, minus that of the last one
    (core/providers/cpu/nn/lrn.cc). Eigen computes the power of four values at a time, and the C library computes those
    that remain at the end.
    """
    float32(node)
    shape, size = node.shape(0), node.attribute("size", 0)
    node.require(len(shape) == 4, f"has an input of shape {list(shape)}, not [N, C, H, W]")
    node.require(size > 0 and size % 2 == 1, f"has a size of {size}, which is not odd and positive")
    alpha, beta, bias = (
        np.float32(node.attribute(name, default)) for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    node.require(bool(alpha > 0 and beta > 0), f"has an alpha of {alpha} and a beta of {beta}; both must be positive")
    if not power.is_supported(float(-beta)):
        node.unsupported(
            f"has a beta of {beta}; of the integers, only those up to {-power.LEAST_SQUARED} are supported"
        )
    made, factor = Real(node.emit, node.expr(0)), float(alpha / np.float32(size))
    size = min(size, 2 * shape[1] - 1)  # a larger size only adds zeros
    squares = made.apply(relax.op.multiply, made.x, made.x)
    padded = made(relax.op.nn.pad(squares, [0, 0, size // 2, size // 2, 0, 0, 0, 0]))
    terms = made.apply(relax.op.multiply, padded, factor)
    sums = _sliding_sums(made, terms, shape, size, bias)
    return node.emit(relax.op.multiply(made.x, _power(made, sums, shape, float(-beta))))


def _sliding_sums(made: Real, terms: relax.Expr, shape: Sequence[int], size: int, bias: np.float32) -> relax.Expr:
    """Returns bias + the sums of `size` terms, `[N, C, H, W]`; `terms` is `[N, C + size - 1, H, W]`.

    All terms are put in the order in which they are added: `bias`, the first `size` terms, and then for each further
    channel the term that comes in and the negative of the term that goes out.
    """
    samples, channels, height, width = shape

    def cut(x: relax.Expr, begin: int, end: int, step: int = 1) -> relax.Expr:
        return made(relax.op.strided_slice(x, [1], [begin], [end], [step]))

    start = relax.const(np.full((samples, 1, height, width), bias))
    parts = [start, cut(terms, 0, size)]
    if channels > 1:
        entering, leaving = cut(terms, size, size + channels - 1), cut(terms, 0, channels - 1)
        ends = (entering, made.apply(relax.op.negative, leaving))
        apart = [made(relax.op.reshape(end, (samples, channels - 1, 1, height, width))) for end in ends]
        pairs = made(relax.op.concat(apart, axis=2))
        parts.append(made(relax.op.reshape(pairs, (samples, 2 * (channels - 1), height, width))))
    sums = made(ops.running_sum(made(relax.op.concat(parts, axis=1)), axis=1))
    return cut(sums, size, size + 2 * channels - 1, 2)


def _power(made: Real, x: relax.Expr, shape: Sequence[int], exponent: float) -> relax.Expr:
    """Returns x**exponent, the last values of a number that four does not divide by the C library's function."""
    count = math.prod(shape)
    whole = count // 4 * 4
    if whole == count:
        return made(ops.real_power(x, exponent=exponent))
    flat = made(relax.op.reshape(x, (1, count)))
    parts = []
    if whole:
        head = made(relax.op.strided_slice(flat, [1], [0], [whole]))
        parts.append(made(ops.real_power(head, exponent=exponent)))
    rest = made(relax.op.strided_slice(flat, [1], [whole], [count]))
    parts.append(made(made.in_float64(lambda wide: relax.op.power(wide, relax.const(exponent, "float64")), rest)))
    return made(relax.op.reshape(made(relax.op.concat(parts, axis=1)), shape))


def _channels(node: Node, rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the input's shape, after checking that each of `rows` has the length of its second axis."""
    shape = node.shape(0)
    node.require_supported(len(shape) >= 2, f"has an input of shape {list(shape)}, not [N, C, …]")
    node.require(all(row == (shape[1],) for row in rows), f"has parameters that do not fit {shape[1]} channels")
    return shape


def _row(node: Node, index: int, rank: int) -> relax.Expr:
    """Returns an input `[C]` reshaped so that it broadcasts along the second of `rank` axes."""
    known, ones = node.known_value(index), [1] * (rank - 2)
    if known is not None:
        return node.literal(known.astype(np.float32).reshape(-1, *ones))
    return node.emit(relax.op.reshape(node.expr(index), (node.shape(index)[0], *ones)), "row")


NORMALIZING: dict[str, tuple[Convert, tuple[int, int]]] = {
    "BatchNormalization": (batch_normalization, (5, 5)),
    "GroupNormalization": (group_normalization, (3, 3)),
    "InstanceNormalization": (instance_normalization, (3, 3)),
    "LRN": (local_response_normalization, (1, 1)),
    "LayerNormalization": (layer_normalization, (2, 3)),
    "LpNormalization": (lp_normalization, (1, 1)),
    "MeanVarianceNormalization": (mean_variance_normalization, (1, 1)),
    "RMSNormalization": (rms_normalization, (2, 2)),
    "SimplifiedLayerNormalization": (rms_normalization, (2, 2)),  # ONNX Runtime's operator, which has ONNX's own domain
    "com.microsoft.SkipLayerNormalization": (skip_layer_normalization, (3, 5)),
    "com.microsoft.SkipSimplifiedLayerNormalization": (skip_rms_normalization, (3, 4)),
}
