"""The operators that are converted: a builtin's name -> its rule and the function that converts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tvm import relax

from service.compiler.importers import real as functions
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators import (
    batch_matmul,
    casts,
    comparison,
    control,
    conversion,
    convolution,
    detection,
    division,
    elementwise,
    fully_connected,
    hybrid,
    indexing,
    joining,
    padding,
    pooling,
    real,
    recurrent,
    reduction,
    resizing,
    selection,
    sequences,
    shape,
    softmax,
    spectral,
    transposed,
    unary,
    unquantized,
    volumes,
)
from service.compiler.importers.tflite.operators.rule import (
    ANY,
    ANY_NUMBER,
    BOOL,
    FLOAT,
    INT8,
    INTEGERS,
    NUMBERS,
    SIGNED,
    STORAGES,
    WIDE,
    Rule,
    moving,
    signed,
    wide,
)
from service.compiler.importers.tflite.operators.sequences import lstm, rnn
from service.compiler.qnn import ops

_DIVIDED = STORAGES | {"int32"}
_WHOLE = frozenset({"int8", "int16", "int32"})
_MODULO = _WHOLE | {"int64", "float32"}
_FLOORED = _WHOLE | {"float32"}
_ORDERED = STORAGES | {"int32", "float32", "bool"}
_DENSE = frozenset({"float16", "float32", "int8"})


def _real(make: Callable[[relax.Expr], relax.Call]) -> Rule:
    """Returns the rule of an operator that is defined only on float32 and rounds at most once."""
    return Rule(real.plain(make), (1, 1), reads=FLOAT, writes=FLOAT)


def _relation(name: str, more: frozenset[str] = FLOAT) -> Rule:
    return Rule(comparison.comparison(name), (2, 2), activations=2, reads=NUMBERS | more, writes=BOOL)


RULES: dict[str, Rule] = {
    "ABS": Rule(unary.absolute, (1, 1), reads=SIGNED | {"int32"}, writes=SIGNED | {"int32"}),
    "ADD": Rule(elementwise.add, (2, 2), activations=2, reads=NUMBERS, writes=NUMBERS),
    "ARG_MAX": Rule(reduction.place(relax.op.argmax), (2, 2), reads=_ORDERED, writes=INTEGERS),
    "ARG_MIN": Rule(reduction.place(relax.op.argmin), (2, 2), reads=_ORDERED, writes=INTEGERS),
    "AVERAGE_POOL_2D": wide(pooling.pool(is_max=False), (1, 1)),
    "BATCH_MATMUL": Rule(batch_matmul.batch_matmul, (2, 2), activations=2, reads=SIGNED, writes=SIGNED),
    "BATCH_TO_SPACE_ND": moving(padding.batch_to_space, (3, 3)),
    "CAST": Rule(casts.cast, (1, 1), reads=ANY | {"complex64"}, writes=ANY),
    "CEIL": _real(relax.op.ceil),
    "CONCATENATION": moving(joining.concatenation, (1, ANY_NUMBER), activations=None),
    "CONV_2D": wide(convolution.convolution(depthwise=False), (2, 3)),
    "CUSTOM(Convolution2DTransposeBias)": Rule(transposed.transpose_conv_with_bias, (3, 3), reads=FLOAT, writes=FLOAT),
    "CUSTOM(TFLite_Detection_PostProcess)": Rule(
        detection.detection_postprocess,
        (3, 3),
        activations=None,
        reads=frozenset({"uint8", "float32"}),
        writes=frozenset({"float32"}),
        outputs=4,
    ),
    "DENSIFY": Rule(conversion.densify, (1, 1), reads=_DENSE, writes=_DENSE, sparse=True),
    "DEPTHWISE_CONV_2D": wide(convolution.convolution(depthwise=True), (2, 3)),
    "DEPTH_TO_SPACE": moving(shape.depth_to_space, (1, 1)),
    "DEQUANTIZE": Rule(conversion.dequantize, (1, 1), reads=WIDE | {"float16"}, writes=frozenset({"float32"})),
    "DIV": Rule(division.div, (2, 2), activations=2, reads=_DIVIDED, writes=_DIVIDED),
    "ELU": Rule(unary.function("elu"), (1, 1), reads=INT8, writes=INT8),
    "EQUAL": _relation("equal", FLOAT | BOOL),
    "EXP": signed(unary.function("exp")),
    "EXPAND_DIMS": moving(shape.expand_dims, (2, 2)),
    "FLOOR": _real(relax.op.floor),
    "FLOOR_DIV": Rule(division.floor_div, (2, 2), activations=2, reads=_FLOORED, writes=_FLOORED),
    "FLOOR_MOD": Rule(division.floor_mod, (2, 2), activations=2, reads=_MODULO, writes=_MODULO),
    "FULLY_CONNECTED": replace(wide(fully_connected.fully_connected, (2, 3)), blocks=True),
    "GELU": wide(unary.gelu, (1, 1)),
    "GREATER": _relation("greater"),
    "GREATER_EQUAL": _relation("greater_equal"),
    "HARD_SWISH": Rule(unary.function("hard_swish"), (1, 1)),
    "L2_NORMALIZATION": Rule(reduction.l2_normalization, (1, 1)),
    "LEAKY_RELU": wide(unary.leaky_relu, (1, 1)),
    "LESS": _relation("less"),
    "LESS_EQUAL": _relation("less_equal"),
    "LOG": signed(unary.function("log")),
    "LOGICAL_AND": Rule(comparison.logical_and, (2, 2), activations=2, reads=BOOL, writes=BOOL),
    "LOGICAL_NOT": Rule(real.plain(relax.op.logical_not), (1, 1), reads=BOOL, writes=BOOL),
    "LOGICAL_OR": Rule(real.plain(relax.op.logical_or), (2, 2), activations=2, reads=BOOL, writes=BOOL),
    "LOGISTIC": wide(unary.squashing("logistic"), (1, 1)),
    "MAXIMUM": Rule(elementwise.extreme(relax.op.maximum), (2, 2), activations=2, reads=NUMBERS, writes=NUMBERS),
    "MAX_POOL_2D": wide(pooling.pool(is_max=True), (1, 1)),
    "MEAN": Rule(reduction.rescaled(ops.mean), (2, 2), reads=NUMBERS, writes=NUMBERS),
    "MINIMUM": Rule(elementwise.extreme(relax.op.minimum), (2, 2), activations=2, reads=NUMBERS, writes=NUMBERS),
    "MIRROR_PAD": moving(padding.mirror_pad, (2, 2)),
    "MUL": Rule(elementwise.mul, (2, 2), activations=2, reads=NUMBERS, writes=NUMBERS),
    "NEG": Rule(real.plain(relax.op.negative), (1, 1), reads=INTEGERS, writes=INTEGERS),
    "NOT_EQUAL": _relation("not_equal", FLOAT | BOOL),
    "PACK": moving(joining.pack, (1, ANY_NUMBER), activations=None),
    "PAD": moving(padding.pad, (2, 2)),
    "PADV2": moving(padding.pad_v2, (3, 3)),
    "PRELU": wide(elementwise.prelu, (2, 2)),
    "QUANTIZE": Rule(conversion.quantize, (1, 1), reads=WIDE | {"int32", "float32"}, writes=WIDE | {"int32"}),
    "REDUCE_MAX": Rule(reduction.extreme(relax.op.max), (2, 2), reads=NUMBERS, writes=NUMBERS),
    "REDUCE_MIN": Rule(reduction.extreme(relax.op.min), (2, 2), reads=NUMBERS, writes=NUMBERS),
    "REDUCE_PROD": Rule(reduction.product, (2, 2), reads=SIGNED | INTEGERS | FLOAT, writes=SIGNED | INTEGERS | FLOAT),
    "RELU": wide(unary.clamp, (1, 1)),
    "RELU6": wide(unary.clamp, (1, 1)),
    "RELU_0_TO_1": Rule(unary.clamp, (1, 1)),
    "RELU_N1_TO_1": Rule(unary.clamp, (1, 1)),
    "RESHAPE": moving(shape.reshape, (1, 2)),
    "RESIZE_BILINEAR": wide(resizing.resize_bilinear, (2, 2)),
    "RESIZE_NEAREST_NEIGHBOR": moving(selection.resize_nearest, (2, 2)),
    "REVERSE_V2": moving(selection.reverse, (2, 2)),
    "ROUND": _real(relax.op.round),
    "RSQRT": signed(unary.function("rsqrt")),
    "SELECT": moving(comparison.select, (3, 3), activations=2, first=1),
    "SELECT_V2": moving(comparison.select_v2, (3, 3), activations=2, first=1),
    "SHAPE": moving(shape.shape, (1, 1)),
    "SLICE": moving(selection.slice_, (3, 3)),
    "SOFTMAX": wide(softmax.softmax, (1, 1)),
    "SPACE_TO_BATCH_ND": moving(padding.space_to_batch, (3, 3)),
    "SPACE_TO_DEPTH": moving(shape.space_to_depth, (1, 1)),
    "SPLIT": moving(joining.split, (2, 2), first=1, outputs=ANY_NUMBER),
    "SPLIT_V": moving(joining.split_v, (3, 3), outputs=ANY_NUMBER),
    "SQRT": signed(unary.function("sqrt")),
    "SQUARED_DIFFERENCE": Rule(
        elementwise.squared_difference, (2, 2), activations=2, reads=INT8 | {"int32"}, writes=INT8 | {"int32"}
    ),
    "SQUEEZE": moving(shape.squeeze, (1, 1)),
    "STRIDED_SLICE": moving(selection.strided_slice, (4, 4)),
    "SUB": Rule(elementwise.sub, (2, 2), activations=2, reads=NUMBERS, writes=NUMBERS),
    "SUM": Rule(reduction.rescaled(ops.sum_), (2, 2), reads=NUMBERS, writes=NUMBERS),
    "SVDF": Rule(recurrent.svdf, (5, 5), reads=INT8, writes=INT8),
    "TANH": wide(unary.squashing("tanh"), (1, 1)),
    "TILE": moving(selection.tile, (2, 2)),
    "TRANSPOSE": moving(shape.transpose, (2, 2)),
    "TRANSPOSE_CONV": wide(transposed.transpose_conv, (3, 4), first=2),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Rule(recurrent.lstm, (20, 24), reads=INT8, writes=INT8),
    "UNPACK": moving(joining.unpack, (1, 1), outputs=ANY_NUMBER),
}

_REAL: Mapping[str, Callable[[Node], relax.Expr]] = {
    "ABS": real.plain(relax.op.abs),
    "ADD": real.binary(relax.op.add),
    "AVERAGE_POOL_2D": real.average_pool2d,
    "BATCH_MATMUL": real.batch_matmul,
    "CONV_2D": real.convolution(depthwise=False),
    "DEPTHWISE_CONV_2D": real.convolution(depthwise=True),
    "DIV": real.binary(relax.op.divide),
    "ELU": real.function(functions.in_float64(functions.elu)),
    "EXP": real.function(functions.of_float32("exp")),
    "FULLY_CONNECTED": real.fully_connected,
    "GELU": real.gelu,
    "HARD_SWISH": real.function(functions.hard_swish),
    "L2_NORMALIZATION": real.l2_normalization,
    "LEAKY_RELU": real.leaky_relu,
    "LOG": real.function(functions.of_relax(relax.op.log)),
    "LOGISTIC": real.function(functions.logistic),
    "MAXIMUM": real.extreme(relax.op.greater),
    "MAX_POOL_2D": real.max_pool2d,
    "MEAN": real.mean,
    "MINIMUM": real.extreme(relax.op.less),
    "MUL": real.binary(relax.op.multiply),
    "NEG": real.plain(relax.op.negative),
    "PRELU": real.prelu,
    "REDUCE_MAX": reduction.extreme(relax.op.max),
    "REDUCE_MIN": reduction.extreme(relax.op.min),
    "RELU": real.clamp,
    "RELU6": real.clamp,
    "RELU_0_TO_1": real.clamp,
    "RELU_N1_TO_1": real.clamp,
    "RESIZE_BILINEAR": real.resize_bilinear,
    "RSQRT": real.function(functions.rsqrt),
    "SOFTMAX": real.softmax,
    "SQRT": real.plain(relax.op.sqrt),
    "SQUARED_DIFFERENCE": real.squared_difference,
    "SUB": real.binary(relax.op.subtract),
    "SUM": real.sum_,
    "SVDF": rnn.svdf,
    "TANH": real.function(functions.of_float32("tanh")),
    "TRANSPOSE_CONV": transposed.real_transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm.unidirectional,
}
_HYBRID: Mapping[str, Callable[[Node], relax.Expr]] = {
    "BATCH_MATMUL": hybrid.batch_matmul,
    "CONV_2D": hybrid.convolution(depthwise=False),
    "DEPTHWISE_CONV_2D": hybrid.convolution(depthwise=True),
    "FULLY_CONNECTED": hybrid.fully_connected,
    "SVDF": rnn.svdf,
    "TRANSPOSE_CONV": hybrid.transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm.unidirectional,
}
RULES = {name: replace(rule, real=_REAL.get(name), hybrid=_HYBRID.get(name)) for name, rule in RULES.items()}
RULES |= unquantized.RULES | indexing.RULES | control.RULES | sequences.RULES | spectral.RULES | volumes.RULES
for _name in spectral.COMPLEX_MOVES:
    RULES[_name] = replace(RULES[_name], reads=RULES[_name].reads | {"complex64"}, writes=ANY | {"complex64"})
