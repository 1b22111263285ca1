"""The operators of random TFLite graphs. Each function draws the operands and options of one operator, and adds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.graphs.graph import OMITTED, Quantization, Tensor, need
from tests.fuzz.graphs.tflite_writer import TfliteWriter

Draw = Callable[[TfliteWriter], None]

_NONE, _RELU, _RELU_N1, _RELU6 = 0, 1, 2, 3
_SAME, _VALID = schema.Padding.SAME, schema.Padding.VALID


def _activation(writer: TfliteWriter) -> int:
    return int(writer.choose(_NONE, _NONE, _NONE, _RELU, _RELU6, _RELU_N1))


def _result(writer: TfliteWriter, quantization: Quantization | None = None) -> Tensor:
    return Tensor((), writer.dtype, quantization or writer.drawn_quantization())


def _compute(
    writer: TfliteWriter,
    op_type: str,
    inputs: Sequence[str],
    options: dict[str, Any] | None,
    scale: float | None = None,
) -> None:
    """Adds an operator whose result gets a scale that fits its values."""
    result = _result(writer, writer.drawn_quantization(scale or writer.scale(inputs[0])))
    writer.values += writer.node(op_type, inputs, options, [result], fit=True)


def _copy(
    writer: TfliteWriter, op_type: str, inputs: Sequence[str], options: dict[str, Any] | None, n: int = 1, of: int = 0
) -> None:
    """Adds an operator whose results have the quantization of an operand."""
    result = _result(writer, writer.quantization(inputs[of]))
    writer.values += writer.node(op_type, inputs, options, [result] * n)


# Windows and products ---------------------------------------------------------------------------------------------


def _weights(writer: TfliteWriter, shape: Sequence[int], axis: int) -> str:
    """Returns weights. int8 and int16 weights have one scale, or one per channel; uint8 weights have one scale and a
    zero point.
    """
    dtype = "uint8" if writer.dtype == "uint8" else "int8"
    if dtype == "uint8":
        quantization = writer.drawn_quantization(10 ** writer.rng.uniform(-3, -1), dtype)
    elif writer.often(0.5):
        scales = (10 ** writer.rng.uniform(-3, -1, shape[axis])).astype(np.float32).tolist()
        quantization = Quantization(tuple(scales), (0,) * shape[axis], axis)
    else:
        quantization = Quantization((float(np.float32(10 ** writer.rng.uniform(-3, -1))),), (0,))
    data = writer.stored(shape, dtype)
    if dtype == "int8":
        data = np.maximum(data, -127)
    return writer.constant(data, quantization=quantization)


def _bias(writer: TfliteWriter, count: int, x: str, weights: str, *, optional: bool = True) -> str:
    if optional and writer.often(0.3):
        return OMITTED
    quantization = writer.quantization(weights)
    scales = tuple(float(np.float32(writer.scale(x)) * np.float32(scale)) for scale in quantization.scales)
    dtype = np.int64 if writer.dtype == "int16" else np.int32
    data = writer.rng.integers(-8000, 8000, count).astype(dtype)
    return writer.constant(data, quantization=Quantization(scales, (0,) * len(scales), 0))


def _strides(writer: TfliteWriter) -> dict[str, int]:
    return {"strideH": int(writer.choose(1, 1, 2, 3)), "strideW": int(writer.choose(1, 1, 2, 3))}


def _dilation(writer: TfliteWriter, strides: dict[str, int]) -> dict[str, int]:
    if not writer.often(0.15) or max(strides.values()) > 1:
        return {"dilationHFactor": 1, "dilationWFactor": 1}
    return {"dilationHFactor": int(writer.choose(1, 2)), "dilationWFactor": int(writer.choose(1, 2))}


def _kernel(writer: TfliteWriter, shape: Sequence[int]) -> tuple[int, int]:
    height, width = (int(writer.rng.integers(1, min(4, size) + 1)) for size in shape[1:3])
    return height, width


def conv(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) == 4, "not an image")
    filters, kernel, strides = int(writer.rng.integers(1, 18)), _kernel(writer, shape), _strides(writer)
    weights = _weights(writer, (filters, *kernel, shape[3]), 0)
    options = {"table": "Conv2DOptionsT", "padding": int(writer.choose(_SAME, _VALID)), **strides}
    options |= {**_dilation(writer, strides), "fusedActivationFunction": _activation(writer)}
    inputs = [x, weights, _bias(writer, filters, x, weights)]
    _compute(writer, "CONV_2D", inputs if inputs[2] or writer.often(0.5) else inputs[:2], options)


def depthwise(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) == 4, "not an image")
    multiplier, kernel, strides = int(writer.choose(1, 1, 1, 2, 3)), _kernel(writer, shape), _strides(writer)
    strides["strideW"] = strides["strideH"]
    weights = _weights(writer, (1, *kernel, shape[3] * multiplier), 3)
    options = {"table": "DepthwiseConv2DOptionsT", "padding": int(writer.choose(_SAME, _VALID)), **strides}
    options |= {**_dilation(writer, strides), "fusedActivationFunction": _activation(writer)}
    options["depthMultiplier"] = multiplier
    inputs = [x, weights, _bias(writer, shape[3] * multiplier, x, weights, optional=False)]
    _compute(writer, "DEPTHWISE_CONV_2D", inputs, options)


def transpose_conv(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) == 4, "not an image")
    filters, kernel, strides = int(writer.rng.integers(1, 9)), _kernel(writer, shape), _strides(writer)
    padding = int(writer.choose(_SAME, _VALID))
    sides = zip(shape[1:3], strides.values(), kernel, strict=True)
    size = [side * stride if padding == _SAME else (side - 1) * stride + taps for side, stride, taps in sides]
    weights = _weights(writer, (filters, *kernel, shape[3]), 0)
    inputs = [writer.ints(shape[0], *size, filters), weights, x]
    if writer.often(0.6):
        inputs.append(_bias(writer, filters, x, weights, optional=False))
    options = {"table": "TransposeConvOptionsT", "padding": padding, **strides}
    result = _result(writer, writer.drawn_quantization(writer.scale(x)))
    writer.values += writer.node("TRANSPOSE_CONV", inputs, options, [result], fit=True)


def fully_connected(writer: TfliteWriter) -> None:
    x = writer.any_value()
    depth, units = writer.shape(x)[-1], int(writer.rng.integers(1, 20))
    weights = _weights(writer, (units, depth), 0)
    options = {"table": "FullyConnectedOptionsT", "fusedActivationFunction": _activation(writer)}
    options["keepNumDims"] = writer.often(0.5)
    _compute(writer, "FULLY_CONNECTED", [x, weights, _bias(writer, units, x, weights)], options)


def batch_matmul(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) >= 2, "a vector")
    adjoint = bool(writer.often(0.5))
    if writer.often(0.5):
        other = x
        options = {"table": "BatchMatMulOptionsT", "adjX": not adjoint, "adjY": adjoint}
    else:
        units = int(writer.rng.integers(1, 12))
        sizes = (units, shape[-1]) if adjoint else (shape[-1], units)
        other = writer.constant(writer.stored(sizes, writer.dtype), quantization=writer.drawn_quantization(0.02))
        options = {"table": "BatchMatMulOptionsT", "adjY": adjoint}
    _compute(writer, "BATCH_MATMUL", [x, other], options)


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
    options = {"table": table, "fusedActivationFunction": _activation(writer)}
    _compute(writer, op_type, inputs if writer.often(0.6) else inputs[::-1], options)


def extreme_of_two(writer: TfliteWriter) -> None:
    x = writer.any_value()
    inputs = [x, _second(writer, x, writer.quantization(x))]
    _copy(writer, str(writer.choose("MAXIMUM", "MINIMUM")), inputs, {"table": "MaximumMinimumOptionsT"})


def squared_difference(writer: TfliteWriter) -> None:
    x = writer.any_value()
    need(writer.dtype == "int8", "int8 only")
    options = {"table": "SquaredDifferenceOptionsT"}
    _compute(writer, "SQUARED_DIFFERENCE", [x, _second(writer, x)], options)


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
    _compute(writer, op_type, [writer.any_value()], options)


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
    writer.values += writer.node(op_type, [x], options, [_result(writer, quantization)])


def prelu(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    slope = writer.constant(
        writer.stored((1,) * (len(shape) - 2) + shape[-1:], writer.dtype), quantization=writer.drawn_quantization(0.01)
    )
    _compute(writer, "PRELU", [x, slope], None)


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
    result = _result(writer, writer.drawn_quantization(scale or 0.1))
    writer.values += writer.node("QUANTIZE", [real], {"table": "QuantizeOptionsT"}, [result])


# Reductions and pools ---------------------------------------------------------------------------------------------


def pool(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) == 4, "not an image")
    height, width = _kernel(writer, shape)
    options = {"table": "Pool2DOptionsT", "padding": int(writer.choose(_SAME, _VALID)), **_strides(writer)}
    options |= {"filterHeight": height, "filterWidth": width, "fusedActivationFunction": _activation(writer)}
    _copy(writer, str(writer.choose("MAX_POOL_2D", "AVERAGE_POOL_2D")), [x], options)


def reduction(writer: TfliteWriter) -> None:
    x = writer.any_value()
    rank = len(writer.shape(x))
    axes = writer.rng.choice(rank, int(writer.rng.integers(1, rank + 1)), replace=False) - rank * writer.often(0.3)
    keep = writer.often(0.6)
    need(keep or len(axes) < rank, "a scalar")
    op_type = str(writer.choose("MEAN", "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"))
    inputs, options = [x, writer.ints(*sorted(axes.tolist()))], {"table": "ReducerOptionsT", "keepDims": keep}
    if op_type in ("REDUCE_MAX", "REDUCE_MIN") or writer.often(0.3):
        _copy(writer, op_type, inputs, options)
    else:
        _compute(writer, op_type, inputs, options)


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
    result = _result(writer, quantization)
    writer.values += writer.node("L2_NORMALIZATION", [x], {"table": "L2NormOptionsT"}, [result])


# Movement ---------------------------------------------------------------------------------------------------------


def concatenation(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    axis = int(writer.rng.integers(len(shape)))
    fitting = [
        value
        for value in writer.values
        if len(writer.shape(value)) == len(shape)
        and all(
            a == b or position == axis for position, (a, b) in enumerate(zip(writer.shape(value), shape, strict=True))
        )
    ]
    parts = [
        fitting[int(position)] for position in writer.rng.integers(len(fitting), size=int(writer.rng.integers(1, 4)))
    ]
    options = {"table": "ConcatenationOptionsT", "axis": axis if writer.often(0.6) else axis - len(shape)}
    if writer.often(0.5):
        _copy(writer, "CONCATENATION", parts, options)
    else:
        _compute(writer, "CONCATENATION", parts, options)


def reshape(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    wanted = writer.choose((shape[0], -1), (-1,), (shape[0], 1, -1, shape[-1]), (*shape, 1)[:4])
    need(int(np.prod(shape)) % abs(int(np.prod(wanted))) == 0, "another number of elements")
    _copy(writer, "RESHAPE", [x, writer.ints(*wanted)], {"table": "ReshapeOptionsT", "newShape": list(wanted)})


def transpose(writer: TfliteWriter) -> None:
    x = writer.any_value()
    order = writer.rng.permutation(len(writer.shape(x))).tolist()
    _copy(writer, "TRANSPOSE", [x, writer.ints(*order)], {"table": "TransposeOptionsT"})


def pad(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    amounts = writer.constant(writer.rng.integers(0, 3, (len(shape), 2)).astype(np.int32))
    match int(writer.rng.integers(3)):
        case 0:
            _copy(writer, "PAD", [x, amounts], {"table": "PadOptionsT"})
        case 1:
            value = writer.constant(writer.stored((1,), writer.dtype), quantization=writer.quantization(x))
            _copy(writer, "PADV2", [x, amounts, value], {"table": "PadV2OptionsT"})
        case _:
            _copy(writer, "MIRROR_PAD", [x, amounts], {"table": "MirrorPadOptionsT", "mode": int(writer.often(0.5))})


def slice_(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    begin = [int(writer.rng.integers(size)) for size in shape]
    if writer.often(0.5):
        size = [int(writer.rng.integers(1, total - first + 1)) for total, first in zip(shape, begin, strict=True)]
        _copy(writer, "SLICE", [x, writer.ints(*begin), writer.ints(*size)], {"table": "SliceOptionsT"})
        return
    end = [int(writer.rng.integers(first + 1, total + 2)) for total, first in zip(shape, begin, strict=True)]
    strides = [int(writer.choose(1, 1, 2)) for _ in shape]
    options = {
        "table": "StridedSliceOptionsT",
        "beginMask": int(writer.choose(0, 1, 3)),
        "endMask": int(writer.choose(0, 2)),
    }
    if writer.often(0.2) and len(shape) > 1:
        options["shrinkAxisMask"] = 1 << int(writer.rng.integers(1, len(shape)))
    _copy(writer, "STRIDED_SLICE", [x, writer.ints(*begin), writer.ints(*end), writer.ints(*strides)], options)


def split(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    axis = int(writer.rng.integers(len(shape)))
    need(shape[axis] > 1, "one element")
    name = writer.constant(np.array(axis, np.int32))
    if shape[axis] % 2 == 0 and writer.often(0.5):
        _copy(writer, "SPLIT", [name, x], {"table": "SplitOptionsT", "numSplits": 2}, n=2, of=1)
    else:
        sizes = writer.ints(1, shape[axis] - 1)
        _copy(writer, "SPLIT_V", [x, sizes, name], {"table": "SplitVOptionsT", "numSplits": 2}, n=2)


def resize(writer: TfliteWriter) -> None:
    x = writer.any_value()
    need(len(writer.shape(x)) == 4, "not an image")
    size = writer.ints(*writer.rng.integers(1, 16, 2).tolist())
    kind = str(writer.choose("Bilinear", "NearestNeighbor"))
    corners = writer.often(0.3)
    options = {"table": f"Resize{kind}OptionsT", "alignCorners": corners}
    options["halfPixelCenters"] = not corners and writer.often(0.5)
    _copy(writer, "RESIZE_BILINEAR" if kind == "Bilinear" else "RESIZE_NEAREST_NEIGHBOR", [x, size], options)


def block(writer: TfliteWriter) -> None:
    x = writer.any_value()
    need(len(writer.shape(x)) == 4, "not an image")
    op_type, table = writer.choose(
        ("SPACE_TO_DEPTH", "SpaceToDepthOptionsT"), ("DEPTH_TO_SPACE", "DepthToSpaceOptionsT")
    )
    _copy(writer, op_type, [x], {"table": table, "blockSize": 2})


def gather(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    axis = int(writer.rng.integers(len(shape)))
    indices = writer.constant(writer.rng.integers(0, shape[axis], int(writer.rng.integers(1, 6))).astype(np.int32))
    _copy(writer, "GATHER", [x, indices], {"table": "GatherOptionsT", "axis": axis})


def pack(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    need(len(shape) < 4, "four axes already")
    axis = int(writer.rng.integers(len(shape) + 1))
    _copy(writer, "PACK", [x, x], {"table": "PackOptionsT", "valuesCount": 2, "axis": axis})


def unpack(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    axis = int(writer.rng.integers(len(shape)))
    need(len(shape) > 1 and shape[axis] <= 4, "too many parts")
    options = {"table": "UnpackOptionsT", "num": shape[axis], "axis": axis}
    _copy(writer, "UNPACK", [x], options, n=shape[axis])


def squeeze(writer: TfliteWriter) -> None:
    x = writer.any_value()
    shape = writer.shape(x)
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    if ones and len(shape) > 2:
        _copy(writer, "SQUEEZE", [x], {"table": "SqueezeOptionsT", "squeezeDims": [writer.choose(*ones)]})
    else:
        need(len(shape) < 4, "four axes already")
        axis = writer.constant(np.array(int(writer.rng.integers(len(shape))), np.int32))
        _copy(writer, "EXPAND_DIMS", [x, axis], {"table": "ExpandDimsOptionsT"})


def tile(writer: TfliteWriter) -> None:
    x = writer.any_value()
    repeats = [int(writer.choose(1, 1, 2)) for _ in writer.shape(x)]
    _copy(writer, "TILE", [x, writer.ints(*repeats)], {"table": "TileOptionsT"})


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
