"""The operators of random TFLite graphs, and how frequent each is. A function draws the operands and options of one
operator, and adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.graphs.graph import Quantization, Tensor, need
from tests.fuzz.graphs.tflite_movement import (
    block,
    concatenation,
    gather,
    pack,
    pad,
    reshape,
    resize,
    slice_,
    split,
    squeeze,
    tile,
    transpose,
    unpack,
)
from tests.fuzz.graphs.tflite_windows import batch_matmul, conv, depthwise, fully_connected, pool, transpose_conv
from tests.fuzz.graphs.tflite_writer import TfliteWriter, compute, copy, draw_activation, new_result

Draw = Callable[[TfliteWriter], None]

# Element by element -----------------------------------------------------------------------------------------------


def _second(writer: TfliteWriter, x: str, quantization: Quantization | None = None) -> str:
    """Returns a second operand for `x`: `x` itself, another value whose shape broadcasts, or a constant."""
    shape = writer.shape(x)
    fitting = [value for value in writer.values if _fits(writer.shape(value), shape)]
    if quantization is not None:
        fitting = [value for value in fitting if writer.quantization(value) == quantization]
    if fitting and writer.often(0.65):
        return fitting[int(writer.rng.integers(len(fitting)))]
    some = tuple(1 if writer.often(0.4) else size for size in shape)[int(writer.rng.integers(len(shape))) :]
    chosen = quantization or writer.drawn_quantization(writer.scale(x) * 2.0 ** writer.rng.uniform(-3, 3))
    return writer.constant(writer.stored(some, writer.dtype), quantization=chosen)


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, whole) == whole
    except ValueError:
        return False


def binary(writer: TfliteWriter) -> None:
    x = writer.any_value()
    op_type, table = writer.choose(("ADD", "AddOptionsT"), ("MUL", "MulOptionsT"), ("SUB", "SubOptionsT"))
    inputs = [x, _second(writer, x)]
    options = {"table": table, "fusedActivationFunction": draw_activation(writer)}
    compute(writer, op_type, inputs if writer.often(0.6) else inputs[::-1], options)


def extreme_of_two(writer: TfliteWriter) -> None:
    x = writer.any_value()
    inputs = [x, _second(writer, x, writer.quantization(x))]
    copy(writer, str(writer.choose("MAXIMUM", "MINIMUM")), inputs, {"table": "MaximumMinimumOptionsT"})


def squared_difference(writer: TfliteWriter) -> None:
    x = writer.any_value()
    need(writer.dtype == "int8", "int8 only")
    options = {"table": "SquaredDifferenceOptionsT"}
    compute(writer, "SQUARED_DIFFERENCE", [x, _second(writer, x)], options)


_COMPUTED: Sequence[tuple[str, dict[str, Any] | None]] = (
    ("RELU", None),
    ("RELU6", None),
    ("LEAKY_RELU", {"table": "LeakyReluOptionsT", "alpha": 0.1}),
    ("HARD_SWISH", {"table": "HardSwishOptionsT"}),
    ("ELU", None),
    ("GELU", {"table": "GeluOptionsT", "approximate": False}),
    ("ABS", {"table": "AbsOptionsT"}),
    ("EXP", {"table": "ExpOptionsT"}),
    ("SQRT", None),
    ("RSQRT", None),
    ("LOG", None),
    ("QUANTIZE", {"table": "QuantizeOptionsT"}),
)


def unary(writer: TfliteWriter) -> None:
    op_type, options = _COMPUTED[int(writer.rng.integers(len(_COMPUTED)))]
    compute(writer, op_type, [writer.any_value()], options)


def sigmoid(writer: TfliteWriter) -> None:
    """Adds a LOGISTIC, TANH or SOFTMAX. Their output has a fixed quantization."""
    x = writer.any_value()
    op_type = str(writer.choose("LOGISTIC", "TANH", "SOFTMAX"))
    options = (
        {"table": "SoftmaxOptionsT", "beta": float(writer.choose(1.0, 1.0, 0.5))} if op_type == "SOFTMAX" else None
    )
    if writer.dtype == "int16":
        quantization = Quantization((1 / 32768,), (0,))
    else:
        low = -128 if writer.dtype == "int8" else 0
        quantization = Quantization((1 / 128,), (low + 128,)) if op_type == "TANH" else Quantization((1 / 256,), (low,))
    writer.values += writer.node(op_type, [x], options, [new_result(writer, quantization)])


def prelu(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    slope = writer.constant(
        writer.stored((1,) * (len(shape) - 2) + shape[-1:], writer.dtype), quantization=writer.drawn_quantization(0.01)
    )
    compute(writer, "PRELU", [x, slope], None)


def real_island(writer: TfliteWriter) -> None:
    """Adds operators between DEQUANTIZE and QUANTIZE, which a converter leaves in float32."""
    x = writer.any_value()
    (real,) = writer.node("DEQUANTIZE", [x], {"table": "DequantizeOptionsT"}, [Tensor((), "float32")])
    for _ in range(int(writer.rng.integers(1, 3))):
        op_type, options = writer.choose(
            ("TANH", None),
            ("LOGISTIC", None),
            ("RELU", None),
            ("ADD", {"table": "AddOptionsT"}),
            ("MUL", {"table": "MulOptionsT"}),
            ("SOFTMAX", {"table": "SoftmaxOptionsT", "beta": 1.0}),
            ("SQRT", None),
            ("LOG", None),
            ("EXP", {"table": "ExpOptionsT"}),
        )
        inputs = [real]
        if op_type in ("ADD", "MUL"):
            inputs.append(writer.constant(writer.rng.normal(0, 1, writer.shape(x)[-1:]).astype(np.float32)))
        (real,) = writer.node(op_type, inputs, options, [Tensor((), "float32")])
    if writer.often(0.2):
        writer.reals.append(real)
        return
    finite = writer.samples[real][np.isfinite(writer.samples[real])]
    scale = float(np.ptp(finite)) / 200 if finite.size else 0.1
    result = new_result(writer, writer.drawn_quantization(scale or 0.1))
    writer.values += writer.node("QUANTIZE", [real], {"table": "QuantizeOptionsT"}, [result])


# Reductions ---------------------------------------------------------------------------------------------


def reduction(writer: TfliteWriter) -> None:
    x = writer.any_value()
    rank = len(writer.shape(x))
    axes = writer.rng.choice(rank, int(writer.rng.integers(1, rank + 1)), replace=False) - rank * writer.often(0.3)
    keep = writer.often(0.6)
    need(keep or len(axes) < rank, "a scalar")
    op_type = str(writer.choose("MEAN", "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"))
    inputs, options = [x, writer.ints(*sorted(axes.tolist()))], {"table": "ReducerOptionsT", "keepDims": keep}
    if op_type in ("REDUCE_MAX", "REDUCE_MIN") or writer.often(0.3):
        copy(writer, op_type, inputs, options)
    else:
        compute(writer, op_type, inputs, options)


def place_of_extreme(writer: TfliteWriter) -> None:
    x = writer.any_value()
    op_type, table = writer.choose(("ARG_MAX", "ArgMaxOptionsT"), ("ARG_MIN", "ArgMinOptionsT"))
    axis = writer.constant(np.array(int(writer.rng.integers(len(writer.shape(x)))), np.int32))
    options = {"table": table, "outputType": schema.TensorType.INT32}
    writer.reals += writer.node(op_type, [x, axis], options, [Tensor((), "int32")])


def l2_normalization(writer: TfliteWriter) -> None:
    x = writer.any_value()
    need(writer.dtype != "int16", "8 bits only")
    quantization = Quantization((1 / 128,), (0 if writer.dtype == "int8" else 128,))
    result = new_result(writer, quantization)
    writer.values += writer.node("L2_NORMALIZATION", [x], {"table": "L2NormOptionsT"}, [result])


def another_input(writer: TfliteWriter) -> None:
    """Adds an input with the shape of an existing value, for operators with two operands."""
    writer.new_input(writer.shape(writer.any_value()))


# Operators that are frequent in networks appear several times.
OPERATORS: Sequence[Draw] = (
    *[conv] * 5,
    *[depthwise] * 3,
    transpose_conv,
    *[fully_connected] * 3,
    batch_matmul,
    *[binary] * 4,
    extreme_of_two,
    squared_difference,
    *[unary] * 3,
    *[sigmoid] * 2,
    prelu,
    real_island,
    *[pool] * 2,
    *[reduction] * 2,
    place_of_extreme,
    l2_normalization,
    *[concatenation] * 2,
    *[reshape] * 2,
    transpose,
    pad,
    slice_,
    split,
    *[resize] * 2,
    block,
    gather,
    pack,
    unpack,
    squeeze,
    tile,
    another_input,
)
