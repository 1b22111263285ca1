"""The operators that can be converted. Maps each type to its allowed numbers of inputs and the function that converts
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from service.compiler.importers.onnx.model import (
    BFLOAT16_PRODUCTS,
    BY_SCALE,
    CONV_TRANSPOSE,
    DEQUANTIZE_CONSTANT,
    MATMUL_ADD,
    REAL_MATMUL_ADD,
    REQUANTIZE,
    ROUND,
    STORED_CONV,
    STORED_MATMUL,
    TIMES_SCALE,
)
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators import (
    activations,
    attention,
    conversion,
    convolution,
    dynamic,
    einsum,
    elementwise,
    embedding,
    functions,
    fused,
    group_attention,
    images,
    indexing,
    joining,
    matrix,
    movement,
    normalizing,
    pooling,
    rarer,
    real,
    recurrent,
    reduction,
    resizing,
    rotary,
    scattering,
    selection,
    sequences,
    shapes,
    signals,
    sliding,
    small_reals,
    standard_attention,
    stored,
    stored_convolution,
    weight_only,
)
from service.compiler.importers.onnx.operators.sliding.transposed import any_conv_transpose
from service.compiler.importers.onnx.operators.sliding.volumes import channels_first, of_volumes, with_channels_last

_ANY_NUMBER = 1 << 16


@dataclass(frozen=True)
class Rule:
    """The conversion rule of one operator.

    Attributes:
        convert: emits the calls or computes the result. Returns the operator's output, or a tuple of all outputs.
        arity: the smallest and the largest number of inputs.
    """

    convert: Callable[[Node], Value | tuple[Value, ...]]
    arity: tuple[int, int]


_FAMILIES = (
    real.REAL,
    rarer.RARER,
    activations.ACTIVATIONS,
    attention.ATTENTION,
    embedding.EMBEDDING,
    fused.FUSED,
    group_attention.GROUPED,
    images.IMAGES,
    indexing.INDEXING,
    normalizing.NORMALIZING,
    recurrent.RECURRENT,
    rotary.ROTARY,
    scattering.SCATTERING,
    sequences.SEQUENCES,
    signals.SIGNALS,
    sliding.SLIDING,
    standard_attention.STANDARD,
    stored.STORED,
    weight_only.WEIGHT_ONLY,
)

RULES: dict[str, Rule] = {
    "Add": Rule(elementwise.arithmetic, (2, 2)),
    "AveragePool": Rule(pooling.average_pool, (1, 1)),
    "Cast": Rule(shapes.cast, (1, 1)),
    "CastLike": Rule(shapes.cast_like, (2, 2)),
    "Clip": Rule(elementwise.clip, (1, 3)),
    "Concat": Rule(joining.concat, (1, _ANY_NUMBER)),
    "Conv": Rule(of_volumes(convolution.conv, 1), (2, 3)),
    "ConvTranspose": Rule(any_conv_transpose, (2, 3)),
    "ConvInteger": Rule(of_volumes(dynamic.conv_integer, 1, 2), (2, 4)),
    "ConstantOfShape": Rule(shapes.constant_of_shape, (1, 1)),
    "DepthToSpace": Rule(selection.depth_to_space, (1, 1)),
    "DequantizeLinear": Rule(conversion.dequantize_linear, (2, 3)),
    "Div": Rule(elementwise.arithmetic, (2, 2)),
    "Dropout": Rule(movement.dropout, (1, 3)),
    "DynamicQuantizeLinear": Rule(dynamic.dynamic_quantize_linear, (1, 1)),
    "Einsum": Rule(einsum.einsum, (1, _ANY_NUMBER)),
    "Expand": Rule(selection.expand, (2, 2)),
    "Flatten": Rule(movement.flatten, (1, 1)),
    "Gather": Rule(selection.gather, (2, 2)),
    "Gemm": Rule(matrix.gemm, (2, 3)),
    "Identity": Rule(movement.identity, (1, 1)),
    "MatMul": Rule(matrix.matmul, (2, 2)),
    "MatMulInteger": Rule(dynamic.matmul_integer, (2, 4)),
    "MaxPool": Rule(pooling.max_pool, (1, 1)),
    "Mod": Rule(shapes.on_known_values(shapes.modulo, shapes.modulo_computed), (2, 2)),
    "Mul": Rule(elementwise.arithmetic, (2, 2)),
    "NonZero": Rule(shapes.on_known_values(shapes.non_zero), (1, 1)),
    "Pad": Rule(selection.pad, (1, 4)),
    "QLinearConv": Rule(of_volumes(convolution.qlinear_conv, 3, 2), (8, 9)),
    "QLinearMatMul": Rule(matrix.qlinear_matmul, (8, 8)),
    "QuantizeLinear": Rule(conversion.quantize_linear, (2, 3)),
    "Range": Rule(shapes.on_known_values(shapes.range_), (3, 3)),
    "Relu": Rule(elementwise.relu, (1, 1)),
    "Reshape": Rule(movement.reshape, (2, 2)),
    "Resize": Rule(resizing.resize, (2, 4)),
    "Shape": Rule(shapes.shape, (1, 1)),
    "Size": Rule(shapes.size, (1, 1)),
    "Slice": Rule(selection.slice_, (3, 5)),
    "SpaceToDepth": Rule(selection.space_to_depth, (1, 1)),
    "Split": Rule(selection.split, (1, 2)),
    "Squeeze": Rule(movement.squeeze, (1, 2)),
    "Sub": Rule(elementwise.arithmetic, (2, 2)),
    "Tile": Rule(selection.tile, (2, 2)),
    "Transpose": Rule(movement.transpose, (1, 1)),
    "Unsqueeze": Rule(movement.unsqueeze, (1, 2)),
    "com.microsoft.DynamicQuantizeMatMul": Rule(dynamic.dynamic_quantize_matmul, (3, 5)),
    "com.microsoft.FusedMatMul": Rule(matrix.fused_matmul, (2, 2)),
    "com.microsoft.MatMulIntegerToFloat": Rule(dynamic.matmul_integer_to_float, (4, 7)),
    "com.microsoft.QLinearAdd": Rule(elementwise.qlinear_add, (7, 8)),
    "com.microsoft.QLinearAveragePool": Rule(channels_first(pooling.qlinear_average_pool), (4, 5)),
    "com.microsoft.NhwcMaxPool": Rule(with_channels_last(pooling.max_pool), (1, 1)),
    "com.microsoft.QLinearConv": Rule(channels_first(of_volumes(convolution.qlinear_conv, 3, 2)), (8, 9)),
    "com.microsoft.QLinearConcat": Rule(joining.qlinear_concat, (5, _ANY_NUMBER)),
    "com.microsoft.QLinearGlobalAveragePool": Rule(channels_first(pooling.qlinear_global_average_pool), (5, 5)),
    "com.microsoft.QLinearLeakyRelu": Rule(functions.qlinear_leaky_relu, (4, 5)),
    "com.microsoft.QLinearMul": Rule(elementwise.qlinear_mul, (7, 8)),
    "com.microsoft.QLinearSigmoid": Rule(functions.qlinear_sigmoid, (4, 5)),
    "com.microsoft.QLinearSoftmax": Rule(functions.qlinear_softmax, (4, 5)),
    "com.microsoft.QLinearWhere": Rule(elementwise.qlinear_where, (9, 9)),
    **{name: Rule(convert, arity) for family in _FAMILIES for name, (convert, arity) in family.items()},
    **{name: Rule(convert, (1, 2)) for name, convert in reduction.REDUCTIONS.items()},
    CONV_TRANSPOSE: Rule(convolution.qlinear_conv_transpose, (8, 9)),
    DEQUANTIZE_CONSTANT: Rule(conversion.dequantize_linear, (2, 3)),
    MATMUL_ADD: Rule(matrix.qlinear_matmul_add, (10, 11)),
    REAL_MATMUL_ADD: Rule(matrix.real_matmul_add, (4, 4)),
    REQUANTIZE: Rule(conversion.requantize, (4, 5)),
    TIMES_SCALE: Rule(small_reals.scale_real(relax.op.multiply), (2, 2)),
    BY_SCALE: Rule(small_reals.scale_real(relax.op.divide), (2, 2)),
    ROUND: Rule(shapes.round_halves, (1, 1)),
    STORED_MATMUL: Rule(matrix.qlinear_matmul, (6, 6)),
    STORED_CONV: Rule(of_volumes(stored_convolution.stored_conv, 3, 2), (7, 9)),
    BFLOAT16_PRODUCTS["Conv"]: Rule(of_volumes(convolution.conv, 1), (2, 3)),
    BFLOAT16_PRODUCTS["Gemm"]: Rule(matrix.gemm, (2, 3)),
    BFLOAT16_PRODUCTS["MatMul"]: Rule(matrix.matmul, (2, 2)),
}
