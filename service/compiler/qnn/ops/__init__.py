"""The operators of the QNN dialect, as functions that build calls.

Activations are `[N, H, W, C]` or `[N, K]`; convolution weights are `[O, KH, KW, I/groups]` (a depthwise convolution is
a grouped one). Every quantized operand has a `QuantizedType`, carried as an attribute in MLIR's text form, so that a
module prints, parses back and compares structurally like any other Relax module.

`conv2d`, `conv2d_transpose` and `dense` return accumulators; `requantize` converts them to storage. A fused activation
is represented only by the storage bounds of an output type. How `requantize` and similar operators round is not defined
here: the numerics mode decides that (`qnn/numerics`).

Each family of operators is one file, with the functions that build its calls and the rules that infer their types. The
rules also check modules that an import child process returns, so they assume nothing about their input.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tvm import relax
from tvm.ir import Op, register_op_attr

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops import (
    accumulating,
    casts,
    counting,
    detecting,
    dynamic,
    elementwise,
    joining,
    normalizing,
    ordering,
    pooling,
    products,
    real,
    recurrent,
    resizing,
    scattering,
    simulated,
)
from service.compiler.qnn.ops import unary as functions
from service.compiler.qnn.ops.accumulating import conv2d, conv2d_transpose, dense
from service.compiler.qnn.ops.call import PREFIX, Rule, call_of, name_of, with_operands
from service.compiler.qnn.ops.casts import dequantize, quantize, requantize, requantize_add, storage_cast
from service.compiler.qnn.ops.counting import value_counts
from service.compiler.qnn.ops.detecting import detect, suppress
from service.compiler.qnn.ops.dynamic import dynamic_pad, dynamic_parameter, dynamic_quantize, dynamic_scale
from service.compiler.qnn.ops.elementwise import add, compare, div, mul, prelu, squared_difference, sub
from service.compiler.qnn.ops.joining import concatenate
from service.compiler.qnn.ops.normalizing import l2_normalize, softmax
from service.compiler.qnn.ops.ordering import running_sum, top_places
from service.compiler.qnn.ops.pooling import avg_pool2d, max_pool2d, mean, sum_
from service.compiler.qnn.ops.products import block_matmul, matmul, real_matmul
from service.compiler.qnn.ops.real import (
    real_conv2d,
    real_fma,
    real_function,
    real_mean,
    real_power,
    real_squares,
    real_sum,
)
from service.compiler.qnn.ops.recurrent import lstm_cell, lstm_output, rescale, time_dense
from service.compiler.qnn.ops.resizing import resize_bilinear, take_pixels
from service.compiler.qnn.ops.scattering import scatter_rows
from service.compiler.qnn.ops.simulated import (
    simulated_accumulate,
    simulated_dequantize,
    simulated_extent,
    simulated_quantize,
)
from service.compiler.qnn.ops.unary import table, unary

__all__ = [
    "PREFIX",
    "add",
    "avg_pool2d",
    "block_matmul",
    "compare",
    "concatenate",
    "conv2d",
    "conv2d_transpose",
    "dense",
    "dequantize",
    "detect",
    "div",
    "dynamic_pad",
    "dynamic_parameter",
    "dynamic_quantize",
    "dynamic_scale",
    "l2_normalize",
    "lstm_cell",
    "lstm_output",
    "matmul",
    "max_pool2d",
    "mean",
    "mul",
    "name_of",
    "prelu",
    "quantize",
    "real_conv2d",
    "real_fma",
    "real_function",
    "real_matmul",
    "real_mean",
    "real_power",
    "real_squares",
    "real_sum",
    "requantize",
    "requantize_add",
    "rescale",
    "resize_bilinear",
    "running_sum",
    "scatter_rows",
    "simulated_accumulate",
    "simulated_dequantize",
    "simulated_extent",
    "simulated_quantize",
    "softmax",
    "squared_difference",
    "storage_cast",
    "sub",
    "sum_",
    "suppress",
    "table",
    "take_pixels",
    "time_dense",
    "top_places",
    "unary",
    "value_counts",
    "with_operands",
]

_FAMILIES = (
    casts,
    accumulating,
    elementwise,
    joining,
    pooling,
    normalizing,
    ordering,
    products,
    real,
    recurrent,
    resizing,
    scattering,
    simulated,
    counting,
    detecting,
    dynamic,
    functions,
)


def _typing(rule: Rule) -> Callable[[relax.Call, relax.BlockBuilder], relax.TensorType]:
    return lambda call, _builder: rule(Operation(call))


def _parseable(name: str) -> Callable[..., relax.Call]:
    """Returns the function that the TVMScript parser calls for `R.qnn.<name>(…)`: positional operands, keyword
    attributes.
    """

    def call(*args: Any, **attrs: Any) -> relax.Call:
        operands = [relax.Tuple(list(arg)) if isinstance(arg, tuple | list) else arg for arg in args]
        return call_of(name, operands, **attrs)

    return call


def _register() -> None:
    namespace = SimpleNamespace()
    for family in _FAMILIES:
        for name, rule in family.RULES.items():
            register_op_attr(PREFIX + name, "FInferType", _typing(rule))
            register_op_attr(PREFIX + name, "FPurity", True)
            Op.get(PREFIX + name).set_num_inputs(-1)  # bias is optional; the rule checks the count
            setattr(namespace, name, _parseable(name))
    from tvm.relax.script import parser

    parser.qnn = namespace


_register()
