"""The operators of random ONNX graphs, and how frequent each is. A function draws the operands and options of one
operator, and adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.graphs.graph import Tensor, need
from tests.fuzz.graphs.onnx_movement import (
    concat,
    depth_to_space,
    gather,
    pad,
    reshape,
    resize,
    slice_,
    split,
    squeeze,
    transpose,
)
from tests.fuzz.graphs.onnx_windows import conv, conv_transpose, dynamic_matmul, gemm, matmul, matmul_of_two, pool
from tests.fuzz.graphs.onnx_writer import MICROSOFT, OnnxWriter, Value, finish

Draw = Callable[[OnnxWriter], None]


# Element by element -----------------------------------------------------------------------------------------------


def _second(writer: OnnxWriter, x: Value) -> str:
    """Returns a real second operand for `x`: `x` itself, another value whose shape broadcasts, or a constant."""
    shape = writer.shape(x.name)
    fitting = [value for value in writer.values if _broadcast(writer.shape(value.name), shape) == shape]
    if writer.often(0.6):
        return writer.dequantize(fitting[int(writer.rng.integers(len(fitting)))])
    some = tuple(1 if writer.often(0.4) else size for size in shape)[int(writer.rng.integers(len(shape))) :]
    spread = float(np.abs(writer.samples[x.scale])) * 100
    if writer.often(0.3):
        return writer.constant(writer.rng.normal(0, spread, some), "float32")
    stored = writer.constant(writer.stored(some, writer.dtype(x)))
    parameters = writer.chosen_quantization(writer.rng.normal(0, spread, 30), writer.dtype(x))
    return writer.node("DequantizeLinear", [stored, *parameters])[0]


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


def binary(writer: OnnxWriter) -> None:
    x = writer.any_value()
    operands = [writer.dequantize(x), _second(writer, x)]
    op_type = str(writer.choose("Add", "Add", "Mul", "Mul", "Sub", "Div", "Max", "Min"))
    (real,) = writer.node(op_type, operands if writer.often(0.6) else operands[::-1])
    need(bool(np.isfinite(writer.samples[real]).all()), "a division by zero")
    finish(writer, real, x)


def microsoft_binary(writer: OnnxWriter) -> None:
    x = writer.any_value()
    dtype = writer.dtype(x)
    same = [value for value in writer.values if writer.dtype(value) == dtype]
    other = same[int(writer.rng.integers(len(same)))]
    y = writer.chosen_quantization(writer.rng.normal(0, 60 * float(np.abs(writer.samples[x.scale])), 30), dtype)
    operands = [x.name, *x.parameters, other.name, *other.parameters, *y]
    (name,) = writer.node(str(writer.choose("QLinearAdd", "QLinearMul")), operands, domain=MICROSOFT)
    writer.values.append(Value(name, *y))


_UNARY: Sequence[tuple[str, dict[str, Any]]] = (
    ("Relu", {}),
    ("LeakyRelu", {"alpha": 0.1}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    ("HardSwish", {}),
    ("Elu", {"alpha": 1.0}),
    ("Erf", {}),
    ("Abs", {}),
    ("Neg", {}),
    ("Exp", {}),
    ("Gelu", {}),
    ("Softplus", {}),
    ("Identity", {}),
    ("Floor", {}),
)


def unary(writer: OnnxWriter) -> None:
    x = writer.any_value()
    op_type, options = _UNARY[int(writer.rng.integers(len(_UNARY)))]
    (real,) = writer.node(op_type, [writer.dequantize(x)], options)
    need(bool(np.isfinite(writer.samples[real]).all()), "values beyond float32")
    finish(writer, real, x, same=0.1)


def swish(writer: OnnxWriter) -> None:
    real = writer.dequantize(writer.any_value())
    (gate,) = writer.node("Sigmoid", [real])
    if writer.often(0.5):
        gate = writer.dequantize(writer.quantize(gate))
    finish(writer, writer.node("Mul", [real, gate])[0])


def prelu(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    slope = writer.constant(writer.rng.uniform(0, 1, (shape[1], *[1] * (len(shape) - 2))), "float32")
    finish(writer, writer.node("PRelu", [writer.dequantize(x), slope])[0], x)


def softmax(writer: OnnxWriter) -> None:
    x = writer.any_value()
    options = {"axis": int(writer.choose(-1, -1, 1))}
    (real,) = writer.node("Softmax", [writer.dequantize(x)], options)
    if writer.often(0.5):
        dtype = writer.dtype(x)
        parameters = writer.quantization(np.float32(1 / 256), -128 if dtype == "int8" else 0, dtype)
        (name,) = writer.node("QuantizeLinear", [real, *parameters])
        writer.values.append(Value(name, *parameters))
        return
    finish(writer, real, x)


def layer_norm(writer: OnnxWriter) -> None:
    x = writer.any_value()
    size = writer.shape(x.name)[-1]
    need(size > 1, "rows of one element")
    operands = [
        writer.dequantize(x),
        writer.constant(writer.rng.uniform(0.5, 1.5, size), "float32"),
        writer.constant(writer.rng.normal(0, 1, size), "float32"),
    ]
    finish(writer, writer.node("LayerNormalization", operands, {"axis": -1})[0], x)


def where(writer: OnnxWriter) -> None:
    x = writer.any_value()
    mask = writer.constant(writer.rng.integers(0, 2, writer.shape(x.name)).astype(bool))
    finish(writer, writer.node("Where", [mask, writer.dequantize(x), _second(writer, x)])[0], x)


def converted_twice(writer: OnnxWriter) -> None:
    x = writer.any_value()
    writer.quantize(writer.dequantize(x), writer.dtype(x) if writer.often(0.7) else None)


# Reductions ---------------------------------------------------------------------------------------------


def global_pool(writer: OnnxWriter) -> None:
    x = writer.any_value()
    need(len(writer.shape(x.name)) in (3, 4), "not an image")
    op_type = str(writer.choose("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    finish(writer, writer.node(op_type, [writer.dequantize(x)])[0], x, same=0.4)


def reduce(writer: OnnxWriter) -> None:
    x = writer.any_value()
    rank = len(writer.shape(x.name))
    axes = writer.rng.choice(rank, int(writer.rng.integers(1, rank + 1)), replace=False) - rank * writer.often(0.5)
    op_type = str(writer.choose("ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"))
    operands = [writer.dequantize(x), writer.constant(sorted(axes.tolist()), "int64")]
    (real,) = writer.node(op_type, operands, {"keepdims": int(writer.often(0.6))})
    need(writer.samples[real].ndim > 0, "a scalar")
    finish(writer, real, x, same=0.3)


def another_input(writer: OnnxWriter) -> None:
    """Adds an input with the shape of an existing value, for operators with two operands."""
    writer.quantized_input(writer.shape(writer.any_value().name))


def boolean_mask(writer: OnnxWriter) -> None:
    """Adds an attention mask before a Softmax. Masked positions are minus infinity or a large negative number."""
    x = writer.any_value()
    shape = writer.shape(x.name)
    mask = writer.input(Tensor(shape, "bool"))
    writer.samples[mask] = writer.rng.integers(0, 2, shape).astype(bool)
    hidden = writer.constant(float(writer.choose(-np.inf, -1e4)), "float32")
    (masked,) = writer.node("Where", [mask, writer.dequantize(x), hidden])
    (real,) = writer.node("Softmax", [masked], {"axis": -1})
    writer.reals.append(real)


# Operators that are frequent in networks appear several times.
OPERATORS: Sequence[Draw] = (
    *[conv] * 5,
    conv_transpose,
    *[matmul] * 3,
    *[gemm] * 2,
    matmul_of_two,
    dynamic_matmul,
    *[binary] * 3,
    microsoft_binary,
    *[unary] * 3,
    swish,
    prelu,
    softmax,
    layer_norm,
    where,
    converted_twice,
    *[pool] * 2,
    global_pool,
    *[reduce] * 2,
    concat,
    *[reshape] * 2,
    transpose,
    slice_,
    split,
    pad,
    resize,
    squeeze,
    depth_to_space,
    gather,
    another_input,
    boolean_mask,
)
