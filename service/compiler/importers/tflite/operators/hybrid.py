"""Operators on float32 activations with 8-bit weights: LiteRT's hybrid kernels, for dynamic-range quantization.

Activations are quantized at run time, by row or by sample, so that products are sums of integers; see `ops.dynamic`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np
from tvm import relax

from service.compiler.importers.builder.dynamic import STORED, Ranges
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.batch_matmul import operand
from service.compiler.importers.tflite.operators.convolution import (
    LEAST_BITS,
    bias_of_reals,
    conv_options,
    filters_and_groups,
    output_channels_first,
    weights_type,
)
from service.compiler.importers.tflite.operators.elementwise import clamped
from service.compiler.importers.tflite.operators.fully_connected import restored, rows_of
from service.compiler.importers.tflite.operators.selection import sliced
from service.compiler.importers.tflite.operators.transposed import BIAS, SOURCE, geometry
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.numerics.sums.transposed import Phases
from service.compiler.qnn.ops.dynamic import (
    BLOCKS,
    BUILTIN_CONV2D,
    BUILTIN_DENSE,
    BUILTIN_GROUPS,
    CONV2D,
    DENSE,
    DEPTHWISE,
    SCALE,
    ZERO_POINT,
)
from service.compiler.qnn.types import QuantizedType

_MOST_MATRICES = 64
_BYTE = 8


def fully_connected(node: Node) -> relax.Expr:
    """Converts FULLY_CONNECTED, with one range for each row (`EvalHybrid` in tflite/kernels/fully_connected.cc)."""
    x, units = rows_of(node)
    if node.input(1).blocks is not None:
        return restored(node, clamped(node, _multiplied_in_blocks(node, x, units), node.activation()), units)
    weight_type = weights_type(node, channel_axis=0)
    symmetric = not node.option("asymmetric_quantize_inputs")
    # The delegate takes only rows of whole bytes.
    is_whole = node.input(1).shape[1] * (node.input(1).packed_bits or _BYTE) % _BYTE == 0
    ranges = Ranges(node, x, [1], DENSE if is_whole else BUILTIN_DENSE, symmetric=symmetric)
    sums = node.emit(ops.dense(ranges.quantized(), node.constant(1), None, STORED, STORED), "sums")
    scaled = _scaled(node, sums, ranges, weight_type, units)
    return restored(node, clamped(node, scaled, node.activation()), units)


def _multiplied_in_blocks(node: Node, x: relax.Expr, units: int) -> relax.Expr:
    """Returns the products of rows and of weights that have a scale for each block of a row. The rows are quantized,
    and their stored values are multiplied by the real weights, because each block's sum of integers has its own scale.
    """
    ranges = Ranges(node, x, [1], BLOCKS)
    stored = node.emit(relax.op.astype(ranges.quantized(), "float32"), "stored")
    centered = node.emit(relax.op.subtract(stored, ranges.parameter(ZERO_POINT)), "centered")
    weight = node.emit(ops.dequantize(node.constant(1), _type_in_blocks(node)), "weights")
    products = node.emit(ops.real_matmul(centered, node.emit(relax.op.permute_dims(weight), "columns")), "products")
    scaled = node.emit(relax.op.multiply(products, ranges.parameter(SCALE)), "scaled")
    bias = bias_of_reals(node, units)
    return scaled if bias is None else node.emit(relax.op.add(scaled, bias), "biased")


def _type_in_blocks(node: Node) -> QuantizedType:
    weights = node.input(1)
    assert weights.blocks is not None
    if weights.packed_bits == LEAST_BITS:
        node.unsupported("has weights of 2 bits in blocks, for which LiteRT has no kernel", weights)
    (units, depth), size, number = weights.shape, weights.blocks.size, weights.blocks.scales
    node.require(size > 0 and depth % size == 0, f"has rows of {depth} weights in blocks of {size}", weights)
    node.require(0 <= number < len(node.model.tensors), f"has its scales in tensor {number}", weights)
    scales, grid = node.model.tensors[number], (units, depth // size)
    fits = scales.data is not None and scales.dtype == "float16" and scales.shape == grid
    node.require(fits, f"has scales of {scales.dtype} {list(scales.shape)}, not float16 {list(grid)}", weights)
    assert scales.data is not None
    # XNNPACK stores scales as bfloat16 (quantized tensors of type xnn_datatype_qbint4).
    values = scales.data.astype(ml_dtypes.bfloat16).astype(np.float32).reshape(-1).tolist()
    node.require(
        all(math.isfinite(scale) and scale > 0 for scale in values), "has a scale that is not positive", weights
    )
    return QuantizedType(f"int{weights.packed_bits}", tuple(values), blocks=((0, 1), (1, size)), grid=grid)


def batch_matmul(node: Node) -> relax.Expr:
    """Converts BATCH_MATMUL by constant matrices, with one range for each row (`EvalHybrid` in
    tflite/kernels/batch_matmul.cc). Each matrix becomes a dense layer.
    """
    x, rank, adj_y = operand(node, 0, "adj_x"), len(node.input(1).shape), bool(node.option("adj_y"))
    node.require(rank >= 2, f"multiplies by a tensor with {rank} dimensions", node.input(1))
    weight_type = weights_type(node, channel_axis=rank - 2 if adj_y else rank - 1)
    matrices = node.data(1) if adj_y else np.swapaxes(node.data(1), -1, -2)
    *batch, rows, depth = shape_of(x)
    *own, units, weight_depth = matrices.shape
    node.require(depth == weight_depth, f"multiplies rows of {depth} by columns of {weight_depth}", node.input(1))
    whole = _broadcast(node, batch, own)
    matrices = np.broadcast_to(matrices, (*whole, units, depth)) if math.prod(own) > 1 else matrices
    matrices = matrices.reshape(-1, units, depth)
    if len(matrices) > _MOST_MATRICES:
        node.unsupported(f"multiplies by {len(matrices)} matrices of weights; at most {_MOST_MATRICES} can be compiled")
    if math.prod(batch) != math.prod(whole):
        x = node.emit(relax.op.broadcast_to(x, (*whole, rows, depth)), "repeated")
    count = math.prod(whole) * rows // len(matrices)
    x = node.emit(relax.op.reshape(x, (len(matrices) * count, depth)), "rows")
    ranges_of = partial(Ranges, kernel=DENSE, symmetric=not node.option("asymmetric_quantize_inputs"))
    products = []
    for index, matrix in enumerate(matrices):
        part = f"matrix_{index}"
        own_rows = x if len(matrices) == 1 else sliced(node, x, [index * count, 0], [(index + 1) * count, depth], part)
        ranges = ranges_of(node, own_rows, [1])
        node.reserve(matrix.size)
        weight = relax.const(np.ascontiguousarray(matrix))
        sums = node.emit(ops.dense(ranges.quantized(), weight, None, STORED, STORED), "sums")
        products.append(node.emit(ranges.scaled(sums, matrix, weight_type, None), "scaled"))
    made = products[0] if len(products) == 1 else node.emit(relax.op.concat(products, 0), "joined")
    return node.emit(relax.op.reshape(made, (*whole, rows, units)))


def _broadcast(node: Node, batch: list[int], own: list[int]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(tuple(batch), tuple(own))
    except ValueError:
        node.malformed(f"multiplies batches of {batch} by batches of {own}", node.input(1))


def convolution(*, depthwise: bool) -> Callable[[Node], relax.Expr]:
    """Returns the converter of CONV_2D or DEPTHWISE_CONV_2D, with one range for each sample. The range is symmetric for
    a CONV_2D whose weights have one scale (`EvalHybrid` in tflite/kernels/conv.cc), and otherwise asymmetric
    (`EvalHybridPerChannel` there and in tflite/kernels/depthwise_conv.cc).
    """

    def convert(node: Node) -> relax.Expr:
        filters, groups = filters_and_groups(node, depthwise=depthwise)
        weight_type = weights_type(node, channel_axis=3 if depthwise else 0)
        if depthwise and node.input(1).packed_bits:
            node.unsupported(
                "has weights of 4 bits and real activations, for which LiteRT has no kernel", node.input(1)
            )
        if depthwise and weight_type.is_per_tensor and filters > 1:
            node.unsupported("has one scale for all its filters, but LiteRT's kernel reads one for each", node.input(1))
        options, weight = conv_options(node), node.constant(1, output_channels_first if depthwise else None)
        padding, kernel = options.pop("padding"), DEPTHWISE if depthwise else _convolution_kernel(node, groups)
        # The delegate computes such a convolution as a dense layer on the pixels. Each pixel then has its own range. It
        # does not take 4-bit weights.
        is_dense = (*shape_of(weight)[1:3], *options["strides"]) == (1, 1, 1, 1) and not any(padding)
        by_pixel = not depthwise and groups == 1 and is_dense and kernel == CONV2D
        axes, shared = ([3], [1, 2]) if by_pixel else ([1, 2, 3], [])
        symmetric = not depthwise and weight_type.is_per_tensor
        ranges = Ranges(node, node.expr(0), axes, kernel, shared=shared, symmetric=symmetric)
        stored = ranges.quantized()
        if any(padding):
            stored = node.emit(ops.dynamic_pad(stored, ranges.parameter(ZERO_POINT), padding), "padded")
        call = ops.conv2d(stored, weight, None, STORED, STORED, padding=(0,) * 4, groups=groups, **options)
        scaled = _scaled(node, node.emit(call, "sums"), ranges, weight_type, filters, channels=3 if depthwise else 0)
        return clamped(node, scaled, node.activation())

    return convert


def transpose_conv(node: Node) -> relax.Expr:
    """Converts TRANSPOSE_CONV, with one asymmetric range for each sample (`EvalHybrid` in
    tflite/kernels/transpose_conv.cc).
    """
    shape, strides, padding, _ = geometry(node)
    weights, weight_type = node.data(1), weights_type(node, channel_axis=0, source=SOURCE)
    (_, height, width, _), (_, rows, columns, _) = node.input(SOURCE).shape, weights.shape
    phases = Phases.around((height, width), (rows, columns), strides, padding[:2], shape[1:3])
    node.reserve(weights.itemsize * math.prod((*phases.taps, phases.count, shape[3], weights.shape[3])))
    ranges, kernel = Ranges(node, node.expr(SOURCE), [1, 2, 3], CONV2D, symmetric=False), phases.kernel(weights)
    stored = ranges.quantized()
    if any(phases.padding):
        stored = node.emit(ops.dynamic_pad(stored, ranges.parameter(ZERO_POINT), phases.padding), "padded")
    call = ops.conv2d(stored, relax.const(kernel), None, STORED, STORED, padding=(0,) * 4)
    bias = bias_of_reals(node, shape[3], BIAS, phases.count)
    scaled = ranges.scaled(node.emit(call, "sums"), kernel, phases.repeated(weight_type), bias)
    made = node.emit(phases.interleaved(node.emit, node.emit(scaled, "scaled")), "interleaved")
    return clamped(node, made, node.activation())


def _convolution_kernel(node: Node, groups: int) -> str:
    if not node.input(1).packed_bits:
        return CONV2D
    return BUILTIN_CONV2D if groups == 1 else BUILTIN_GROUPS


def _scaled(
    node: Node, sums: relax.Expr, ranges: Ranges, weight_type: QuantizedType, filters: int, channels: int = 0
) -> relax.Expr:
    return node.emit(ranges.scaled(sums, node.data(1), weight_type, bias_of_reals(node, filters), channels), "scaled")
