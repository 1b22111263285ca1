"""Extending the compiler: operators, patterns, passes and importers of your own, and graphs of the QNN dialect.

A Python file that uses this module is a dialect: `octet compile --dialect FILE`. docs/how-to/dialects.md has examples.
"""

from tvm.relax import dpl as patterns

from service.compiler.dialects.building import Graph, Module
from service.compiler.dialects.dialect import Dialect
from service.compiler.dialects.operators import Operator
from service.compiler.dialects.reading import attribute_of, constant, type_of, value_of
from service.compiler.qnn.expressions.formula import (
    InvalidFormula,
    clip,
    divide_by_power,
    erf,
    exp,
    floor,
    fma,
    log,
    maximum,
    minimum,
    multiply_high,
    round_away,
    round_even,
    sigmoid,
    sqrt,
    tanh,
    to_float,
    where,
)
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.ops import (
    add,
    avg_pool2d,
    concatenate,
    conv2d,
    conv2d_transpose,
    dense,
    dequantize,
    matmul,
    max_pool2d,
    mean,
    mul,
    quantize,
    real_conv2d,
    real_matmul,
    requantize,
    sub,
    table,
    unary,
)
from service.compiler.qnn.type_parser import parse as type
from service.compiler.qnn.types import QuantizedType, accumulator_type

__all__ = [
    "Dialect",
    "Graph",
    "IllTyped",
    "InvalidFormula",
    "Module",
    "Operator",
    "QuantizedType",
    "accumulator_type",
    "add",
    "attribute_of",
    "avg_pool2d",
    "clip",
    "concatenate",
    "constant",
    "conv2d",
    "conv2d_transpose",
    "dense",
    "dequantize",
    "divide_by_power",
    "erf",
    "exp",
    "floor",
    "fma",
    "log",
    "matmul",
    "max_pool2d",
    "maximum",
    "mean",
    "minimum",
    "mul",
    "multiply_high",
    "patterns",
    "quantize",
    "real_conv2d",
    "real_matmul",
    "requantize",
    "round_away",
    "round_even",
    "sigmoid",
    "sqrt",
    "sub",
    "table",
    "tanh",
    "to_float",
    "type",
    "type_of",
    "unary",
    "value_of",
    "where",
]
