"""The operators of random ONNX graphs. Each function draws the operands and options of one operator, and adds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.graphs.graph import OMITTED, Tensor, need
from tests.fuzz.graphs.onnx_writer import OnnxWriter, Value

Draw = Callable[[OnnxWriter], None]

_MICROSOFT = "com.microsoft"


def _finish(writer: OnnxWriter, real: str, like: Value | None = None, *, same: float = 0.0) -> None:
    """Quantizes a result, sometimes after an activation. Some results stay real and become outputs instead."""
    if writer.often(0.25):
        kind, options = writer.choose(("Relu", {}), ("Clip", None), ("Relu", {}))
        operands = [real]
        if options is None:
            operands += [writer.constant(0.0, "float32"), writer.constant(writer.choose(6.0, 1.0), "float32")]
        (real,) = writer.node(kind, operands, options)
    if writer.often(0.06) and writer.samples[real].dtype == np.float32:
        writer.reals.append(real)
        return
    need(writer.samples[real].dtype == np.float32, "the result is not real")
    dtype = writer.dtype(like) if like and writer.often(0.8) else None
    writer.quantize(real, dtype, like if like and writer.often(same) else None)


# Windows and products ---------------------------------------------------------------------------------------------


def _weights(writer: OnnxWriter, shape: Sequence[int], axis: int, activations: str) -> tuple[str, tuple[str, str], Any]:
    """Returns the name of stored weights, the names of their scale and zero point, and the values of the scales."""
    dtype = "int8" if activations == "int8" or writer.often(0.7) else "uint8"
    scales: Any = np.float32(10 ** writer.rng.uniform(-3, -1))
    if writer.often(0.5):
        scales = (10 ** writer.rng.uniform(-3, -1, shape[axis])).astype(np.float32)
    points = np.zeros(np.shape(scales), dtype)
    if dtype == "uint8" or writer.often(0.05):
        points = np.full(np.shape(scales), int(writer.rng.integers(-20, 20)) + (128 if dtype == "uint8" else 0), dtype)
    return writer.constant(writer.stored(shape, dtype)), writer.quantization(scales, points, dtype), scales


def _dequantized_weights(writer: OnnxWriter, shape: Sequence[int], axis: int, activations: str) -> tuple[str, Any]:
    """Returns real weights in one of the forms that quantizers write: stored and dequantized, or real, quantized and
    dequantized.
    """
    stored, parameters, scales = _weights(writer, shape, axis, activations)
    options = {"axis": axis} if np.ndim(scales) else {}
    if writer.often(0.12):
        point = writer.tensors[parameters[1]].data
        assert point is not None
        along = [-1 if index == axis else 1 for index in range(len(shape))] if np.ndim(scales) else []
        real = (writer.samples[stored].astype(np.float32) - point.astype(np.float32).reshape(along)) * np.reshape(
            scales, along
        ).astype(np.float32)
        (stored,) = writer.node("QuantizeLinear", [writer.constant(real, "float32"), *parameters], options)
    (name,) = writer.node("DequantizeLinear", [stored, *parameters], options)
    if writer.often(0.05):
        (name,) = writer.node("Identity", [name])
    return name, scales


def _bias(writer: OnnxWriter, count: int, x: Value, scales: Any) -> list[str]:
    """Returns an empty list, an int32 bias with the scale of the products, or a real bias."""
    scale = writer.samples[x.scale] * np.asarray(scales, np.float32)
    stored = writer.rng.integers(-8000, 8000, count).astype(np.int32)
    match int(writer.rng.integers(3)):
        case 0:
            return []
        case 1:
            parameters = [writer.constant(scale.astype(np.float32))]
            if writer.often(0.7):
                parameters.append(writer.constant(np.zeros(scale.shape, np.int32)))
            return writer.node(
                "DequantizeLinear", [writer.constant(stored), *parameters], {"axis": 0} if scale.ndim else {}
            )
    return [writer.constant((stored * scale * writer.rng.uniform(0.5, 2)).astype(np.float32))]


def _window(writer: OnnxWriter, spatial: Sequence[int], *, dilated: bool = True) -> dict[str, Any]:
    rng = writer.rng
    kernel = [int(rng.integers(1, min(4, size) + 1)) for size in spatial]
    options: dict[str, Any] = {"kernel_shape": kernel}
    if writer.often(0.5):
        options["strides"] = [int(rng.integers(1, 4)) for _ in spatial]
    if dilated and writer.often(0.15):
        options["dilations"] = [int(rng.integers(1, 3)) for _ in spatial]
    match int(rng.integers(4)):
        case 0:
            options["auto_pad"] = writer.choose("SAME_UPPER", "SAME_LOWER", "VALID")
        case 1 | 2:
            options["pads"] = [int(rng.integers(size)) for size in (*kernel, *kernel)]
    return options


def conv(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) in (3, 4), "not an image")
    channels = shape[1]
    groups = int(writer.choose(1, 1, channels, max(1, channels // 2) if channels % 2 == 0 else 1))
    filters = groups * int(writer.rng.integers(1, max(2, 17 // groups)))
    options = _window(writer, shape[2:]) | {"group": groups}
    weights_shape = (filters, channels // groups, *options["kernel_shape"])
    if writer.often(0.2):
        stored, parameters, _ = _weights(writer, weights_shape, 0, writer.dtype(x))
        bias = [writer.constant(writer.rng.integers(-5000, 5000, filters), "int32")] if writer.often(0.5) else []
        y = writer.quantization(np.float32(0.05 * 2 ** writer.rng.uniform(-4, 4)), 7, writer.dtype(x))
        (name,) = writer.node("QLinearConv", [x.name, *x.parameters, stored, *parameters, *y, *bias], options)
        writer.values.append(Value(name, *y))
        return
    weights, scales = _dequantized_weights(writer, weights_shape, 0, writer.dtype(x))
    operands = [writer.dequantize(x), weights, *_bias(writer, filters, x, scales)]
    _finish(writer, writer.node("Conv", operands, options)[0], x)


def conv_transpose(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) == 4, "not an image")
    groups = int(writer.choose(1, 1, shape[1]))
    each = int(writer.rng.integers(1, 5))
    options = _window(writer, shape[2:], dilated=False) | {"group": groups}
    weights, scales = _dequantized_weights(writer, (shape[1], each, *options["kernel_shape"]), 1, writer.dtype(x))
    need(groups == 1 or not np.ndim(scales), "scales by the filters of a group")
    operands = [writer.dequantize(x), weights, *_bias(writer, groups * each, x, scales)[:1]]
    _finish(writer, writer.node("ConvTranspose", operands, options)[0], x)


def matmul(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    depth, units = shape[-1], int(writer.rng.integers(1, 20))
    if writer.often(0.15):
        stored, parameters, _ = _weights(writer, (depth, units), 1, writer.dtype(x))
        y = writer.quantization(np.float32(0.05 * 2 ** writer.rng.uniform(-4, 4)), 7, writer.dtype(x))
        (name,) = writer.node("QLinearMatMul", [x.name, *x.parameters, stored, *parameters, *y])
        writer.values.append(Value(name, *y))
        return
    weights, _ = _dequantized_weights(writer, (depth, units), 1, writer.dtype(x))
    (real,) = writer.node("MatMul", [writer.dequantize(x), weights])
    if writer.often(0.5):
        operands = [real, writer.constant((writer.rng.normal(0, 1, units) * writer.samples[real].std()).astype("f4"))]
        (real,) = writer.node("Add", operands if writer.often(0.7) else operands[::-1])
    _finish(writer, real, x)


def matmul_of_two(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) >= 2, "a vector")
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    (other,) = writer.node("Transpose", [writer.dequantize(x)], {"perm": order})
    if writer.often(0.7):
        other = writer.dequantize(writer.quantize(other, writer.dtype(x), x))
    _finish(writer, writer.node("MatMul", [writer.dequantize(x), other])[0], x)


def gemm(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) == 2, "not a matrix")
    units, transposed = int(writer.rng.integers(1, 20)), int(writer.rng.integers(2))
    sizes = (units, shape[1]) if transposed else (shape[1], units)
    weights, scales = _dequantized_weights(writer, sizes, 1 - transposed, writer.dtype(x))
    options: dict[str, Any] = {"transB": transposed}
    if writer.often(0.1):
        options |= {"alpha": float(writer.choose(0.5, 2.0)), "beta": float(writer.choose(1.0, 0.5))}
    operands = [writer.dequantize(x), weights, *_bias(writer, units, x, scales)]
    _finish(writer, writer.node("Gemm", operands, options)[0], x)


def dynamic_matmul(writer: OnnxWriter) -> None:
    x = writer.any_value()
    units = int(writer.rng.integers(1, 16))
    stored, parameters, _ = _weights(writer, (writer.shape(x.name)[-1], units), 1, "uint8")
    real = writer.dequantize(x)
    if writer.often(0.4):
        bias = [writer.constant(writer.rng.normal(0, 1, units), "float32")] if writer.often(0.5) else []
        operands = [real, stored, *parameters, *bias]
        (result,) = writer.node("DynamicQuantizeMatMul", operands, domain=_MICROSOFT)
    else:
        quantized, scale, point = writer.node("DynamicQuantizeLinear", [real], n=3)
        zero = [] if not np.any(writer.samples[parameters[1]]) and writer.often(0.5) else [parameters[1]]
        (sums,) = writer.node("MatMulInteger", [quantized, stored, point, *zero])
        (cast,) = writer.node("Cast", [sums], {"to": 1})
        (factor,) = writer.node("Mul", [scale, parameters[0]])
        (result,) = writer.node("Mul", [cast, factor])
    _finish(writer, result)


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
    _finish(writer, real, x)


def microsoft_binary(writer: OnnxWriter) -> None:
    x = writer.any_value()
    dtype = writer.dtype(x)
    same = [value for value in writer.values if writer.dtype(value) == dtype]
    other = same[int(writer.rng.integers(len(same)))]
    y = writer.chosen_quantization(writer.rng.normal(0, 60 * float(np.abs(writer.samples[x.scale])), 30), dtype)
    operands = [x.name, *x.parameters, other.name, *other.parameters, *y]
    (name,) = writer.node(str(writer.choose("QLinearAdd", "QLinearMul")), operands, domain=_MICROSOFT)
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
    _finish(writer, real, x, same=0.1)


def swish(writer: OnnxWriter) -> None:
    real = writer.dequantize(writer.any_value())
    (gate,) = writer.node("Sigmoid", [real])
    if writer.often(0.5):
        gate = writer.dequantize(writer.quantize(gate))
    _finish(writer, writer.node("Mul", [real, gate])[0])


def prelu(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    slope = writer.constant(writer.rng.uniform(0, 1, (shape[1], *[1] * (len(shape) - 2))), "float32")
    _finish(writer, writer.node("PRelu", [writer.dequantize(x), slope])[0], x)


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
    _finish(writer, real, x)


def layer_norm(writer: OnnxWriter) -> None:
    x = writer.any_value()
    size = writer.shape(x.name)[-1]
    need(size > 1, "rows of one element")
    operands = [
        writer.dequantize(x),
        writer.constant(writer.rng.uniform(0.5, 1.5, size), "float32"),
        writer.constant(writer.rng.normal(0, 1, size), "float32"),
    ]
    _finish(writer, writer.node("LayerNormalization", operands, {"axis": -1})[0], x)


def where(writer: OnnxWriter) -> None:
    x = writer.any_value()
    mask = writer.constant(writer.rng.integers(0, 2, writer.shape(x.name)).astype(bool))
    _finish(writer, writer.node("Where", [mask, writer.dequantize(x), _second(writer, x)])[0], x)


def converted_twice(writer: OnnxWriter) -> None:
    x = writer.any_value()
    writer.quantize(writer.dequantize(x), writer.dtype(x) if writer.often(0.7) else None)


# Reductions and pools ---------------------------------------------------------------------------------------------


def pool(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) in (3, 4), "not an image")
    op_type = str(writer.choose("MaxPool", "AveragePool"))
    options = _window(writer, shape[2:], dilated=op_type == "MaxPool")
    if op_type == "AveragePool" and writer.often(0.3):
        options["count_include_pad"] = 1
    if "auto_pad" not in options and writer.often(0.2):
        options["ceil_mode"] = 1
    (real,) = writer.node(op_type, [writer.dequantize(x)], options)
    _finish(writer, real, x, same=0.8)


def global_pool(writer: OnnxWriter) -> None:
    x = writer.any_value()
    need(len(writer.shape(x.name)) in (3, 4), "not an image")
    op_type = str(writer.choose("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    _finish(writer, writer.node(op_type, [writer.dequantize(x)])[0], x, same=0.4)


def reduce(writer: OnnxWriter) -> None:
    x = writer.any_value()
    rank = len(writer.shape(x.name))
    axes = writer.rng.choice(rank, int(writer.rng.integers(1, rank + 1)), replace=False) - rank * writer.often(0.5)
    op_type = str(writer.choose("ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"))
    operands = [writer.dequantize(x), writer.constant(sorted(axes.tolist()), "int64")]
    (real,) = writer.node(op_type, operands, {"keepdims": int(writer.often(0.6))})
    need(writer.samples[real].ndim > 0, "a scalar")
    _finish(writer, real, x, same=0.3)


# Movement ---------------------------------------------------------------------------------------------------------


def _copy(
    writer: OnnxWriter, x: Value, op_type: str, operands: Sequence[str], options: dict[str, Any], n: int = 1
) -> None:
    """Adds an operator that moves stored values; or one that moves real values between conversions of one type."""
    if writer.often(0.2):
        for name in writer.node(op_type, [x.name, *operands], options, n=n):
            writer.values.append(Value(name, *x.parameters))
        return
    for real in writer.node(op_type, [writer.dequantize(x), *operands], options, n=n):
        writer.quantize(real, writer.dtype(x), x if writer.often(0.85) else None)


def concat(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    axis = int(writer.rng.integers(len(shape)))
    fitting = [
        value
        for value in writer.values
        if len(writer.shape(value.name)) == len(shape)
        and all(
            a == b or position == axis
            for position, (a, b) in enumerate(zip(writer.shape(value.name), shape, strict=True))
        )
    ]
    parts = [
        fitting[int(position)] for position in writer.rng.integers(len(fitting), size=int(writer.rng.integers(1, 4)))
    ]
    operands = [writer.dequantize(part) for part in parts]
    if writer.often(0.15):
        operands.append(_second_of_shape(writer, x, shape))
    (real,) = writer.node("Concat", operands, {"axis": axis if writer.often(0.6) else axis - len(shape)})
    writer.quantize(real, writer.dtype(x), x if writer.often(0.5) else None)


def _second_of_shape(writer: OnnxWriter, x: Value, shape: tuple[int, ...]) -> str:
    stored = writer.constant(writer.stored(shape, writer.dtype(x)))
    return writer.node("DequantizeLinear", [stored, *x.parameters])[0]


def reshape(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = list(writer.shape(x.name))
    match int(writer.rng.integers(3)):
        case 0:
            wanted = [shape[0], -1]
        case 1 if len(shape) == 4:
            wanted = [shape[0], shape[1], -1]
        case _:
            wanted = [0, -1] if len(shape) != 2 else [shape[0], 1, 1, shape[1]]
    _copy(writer, x, "Reshape", [writer.constant(wanted, "int64")], {})


def transpose(writer: OnnxWriter) -> None:
    x = writer.any_value()
    order = writer.rng.permutation(len(writer.shape(x.name))).tolist()
    _copy(writer, x, "Transpose", [], {"perm": order})


def slice_(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    axis = int(writer.rng.integers(len(shape)))
    start, step = int(writer.rng.integers(shape[axis])), int(writer.choose(1, 1, 2, -1))
    end = int(writer.rng.integers(start + 1, shape[axis] + 2)) if step > 0 else -(1 << 40)
    operands = [writer.constant([value], "int64") for value in (start, end, axis, step)]
    _copy(writer, x, "Slice", operands, {})


def split(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    axis = int(writer.rng.integers(len(shape)))
    need(shape[axis] > 1, "one element")
    first = int(writer.rng.integers(1, shape[axis]))
    _copy(writer, x, "Split", [writer.constant([first, shape[axis] - first], "int64")], {"axis": axis}, n=2)


def pad(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    mode = str(writer.choose("constant", "constant", "reflect", "edge"))
    pads = [int(writer.rng.integers(0, min(3, size))) if writer.often(0.5) else 0 for size in (*shape, *shape)]
    _copy(writer, x, "Pad", [writer.constant(pads, "int64")], {"mode": mode})


def resize(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) == 4, "not an image")
    mode = str(writer.choose("nearest", "linear", "cubic"))
    options = {
        "mode": mode,
        "coordinate_transformation_mode": str(
            writer.choose("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        ),
    }
    if mode == "nearest":
        options["nearest_mode"] = str(writer.choose("round_prefer_floor", "floor", "ceil"))
    sizes = [*shape[:2], *writer.rng.integers(1, 16, 2).tolist()]
    operands = [OMITTED, OMITTED, writer.constant(sizes, "int64")]
    if writer.often(0.5):
        factors = [1.0, 1.0, *writer.rng.choice([0.5, 1.5, 2.0, 3.0], 2).tolist()]
        operands = [OMITTED, writer.constant(factors, "float32")]
    (real,) = writer.node("Resize", [writer.dequantize(x), *operands], options)
    writer.quantize(real, writer.dtype(x), x if writer.often(0.7) else None)


def squeeze(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    ones = [axis for axis, size in enumerate(shape) if size == 1 and axis > 0]
    if ones and len(shape) > 2:
        _copy(writer, x, "Squeeze", [writer.constant([writer.choose(*ones)], "int64")], {})
    else:
        need(len(shape) < 4, "four axes already")
        _copy(writer, x, "Unsqueeze", [writer.constant([int(writer.rng.integers(1, len(shape) + 1))], "int64")], {})


def depth_to_space(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    need(len(shape) == 4, "not an image")
    if shape[1] % 4 == 0 and writer.often(0.6):
        _copy(writer, x, "DepthToSpace", [], {"blocksize": 2, "mode": str(writer.choose("DCR", "CRD"))})
    else:
        need(shape[2] % 2 == 0 and shape[3] % 2 == 0, "odd sides")
        _copy(writer, x, "SpaceToDepth", [], {"blocksize": 2})


def gather(writer: OnnxWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x.name)
    axis = int(writer.rng.integers(len(shape)))
    indices = writer.rng.integers(-shape[axis], shape[axis], int(writer.rng.integers(1, 6)))
    _copy(writer, x, "Gather", [writer.constant(indices, str(writer.choose("int64", "int32")))], {"axis": axis})


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
