"""ONNX models of one operator each that does not compute in 8-bit integers: real values, and other widths.

As in `onnx_catalog`, a seeded generator makes all choices. Each model quantizes its input, so that it counts as a
quantized model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_catalog import Quantized, Rng, Write, image, pick, scale, storage, window
from tests.support.onnx_catalog_dynamic import DYNAMIC
from tests.support.onnx_catalog_qdq import leave, real


def _unary(op_type: str, domain: str = "", **attributes: Any) -> Write:
    """Returns a function that writes an operator on dequantized values. There are at most 256 different values."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = real(model, "x", (2, 3, 64), Quantized(model, rng, storage(rng)))
        model.output(model.node(op_type, [x], domain=domain, **attributes), "float32")

    return write


def _positive(op_type: str) -> Write:
    """Returns a function that writes an operator on positive real values."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = model.node("Relu", [real(model, "x", (2, 3, 64), Quantized(model, rng, storage(rng)))])
        shifted = model.node("Add", [x, model.constant(0.01, "float32")])
        model.output(model.node(op_type, [shifted]), "float32")

    return write


def _binary(op_type: str, result: str = "float32") -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        shape, x = (2, 3, 5), Quantized(model, rng, storage(rng))
        names = [
            real(model, name, sides, x) for name, sides in zip("ab", (shape, pick(rng, shape, (3, 1))), strict=True)
        ]
        model.output(model.node(op_type, names), result)

    return write


def _power(model: OnnxBuilder, rng: Rng) -> None:
    x = model.node("Relu", [real(model, "x", (2, 40), Quantized(model, rng, storage(rng)))])
    model.output(model.node("Pow", [x, model.constant(pick(rng, 2.0, 3.0, 1.5, 0.5), "float32")]), "float32")


def _reduction(op_type: str) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = real(model, "x", (2, 3, 8, 5), Quantized(model, rng, storage(rng)))
        axes = pick(rng, [1], [2, 3], [-1])
        operands, attributes = (
            ([x, model.constant(axes, "int64")], {}) if op_type == "ReduceSum" else ([x], {"axes": axes})
        )
        model.output(model.node(op_type, operands, keepdims=int(rng.integers(0, 2)), **attributes), "float32")

    return write


def _place(op_type: str) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = real(model, "x", (2, 30, 5), Quantized(model, rng, storage(rng)))
        model.output(model.node(op_type, [x], axis=1, keepdims=int(rng.integers(0, 2))), "int64")

    return write


def _softmax(op_type: str) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = real(model, "x", (2, 3, 20), Quantized(model, rng, storage(rng)))
        model.output(model.node(op_type, [x], axis=pick(rng, -1, 1)), "float32")

    return write


def layer_normalization(model: OnnxBuilder, rng: Rng) -> None:
    x = real(model, "x", (2, 3, 20), Quantized(model, rng, storage(rng)))
    rows = [model.constant(rng.normal(size=20), "float32") for _ in range(int(rng.integers(1, 3)))]
    model.output(model.node("LayerNormalization", [x, *rows], epsilon=1e-3), "float32")


def batch_normalization(model: OnnxBuilder, rng: Rng) -> None:
    x = real(model, "x", (1, 4, 5, 5), Quantized(model, rng, storage(rng)))
    rows = [model.constant(rng.uniform(0.5, 2, 4), "float32") for _ in range(4)]
    model.output(model.node("BatchNormalization", [x, *rows]), "float32")


def local_response_normalization(model: OnnxBuilder, rng: Rng) -> None:
    """The last few values are computed in another way, unless four divides the number of values."""
    shape = pick(rng, (1, 9, 4, 4), (2, 6, 3, 5), (1, 4, 5, 5))
    x = real(model, "x", shape, Quantized(model, rng, storage(rng)))
    attributes = pick(rng, {}, {"alpha": 0.5, "beta": 0.5, "bias": 2.0}, {"alpha": 1e-3, "beta": 1.0})
    model.output(model.node("LRN", [x], size=pick(rng, 1, 3, 5, 9), **attributes), "float32")


def conv(model: OnnxBuilder, rng: Rng) -> None:
    shape = image(rng)
    attributes, groups = window(rng, shape), int(pick(rng, 1, shape[1]))
    filters = groups * int(rng.integers(1, 4))
    weights = rng.normal(size=(filters, shape[1] // groups, *attributes["kernel_shape"]))
    bias = [model.constant(rng.normal(size=filters), "float32")] if rng.integers(0, 2) else []
    x = real(model, "x", shape, Quantized(model, rng, storage(rng)))
    model.output(
        model.node("Conv", [x, model.constant(weights, "float32"), *bias], group=groups, **attributes), "float32"
    )


def conv_transpose(model: OnnxBuilder, rng: Rng) -> None:
    groups, kernel = int(rng.integers(1, 3)), (int(rng.integers(2, 5)), int(rng.integers(2, 5)))
    weights = model.constant(rng.normal(size=(4, int(rng.integers(1, 4)), *kernel)), "float32")
    strides = [int(rng.integers(1, 4)), int(rng.integers(1, 4))]
    x = real(model, "x", (1, 4, 5, 6), Quantized(model, rng, storage(rng)))
    more = [int(rng.integers(0, stride)) for stride in strides]
    pads = [int(rng.integers(0, 2)) for _ in range(4)]
    attributes: dict[str, Any] = {"strides": strides, "pads": pads, "group": groups, "output_padding": more}
    model.output(model.node("ConvTranspose", [x, weights], kernel_shape=list(kernel), **attributes), "float32")


def pooling(op_type: str) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        shape = image(rng)
        attributes = window(rng, shape)
        if str(attributes.get("auto_pad", "")).startswith("SAME"):  # ONNX Runtime fails if strides exceed the window
            attributes["auto_pad"] = "VALID"
        if op_type == "AveragePool":
            attributes |= {"count_include_pad": int(rng.integers(0, 2))}
        x = model.node("Sqrt", [model.node("Relu", [real(model, "x", shape, Quantized(model, rng, storage(rng)))])])
        model.output(model.node(op_type, [x], **attributes), "float32")

    return write


def matmul(model: OnnxBuilder, rng: Rng) -> None:
    x = real(model, "x", (2, 3, 10), Quantized(model, rng, storage(rng)))
    if rng.integers(0, 2):
        y = model.constant(rng.normal(size=(10, 7)), "float32")
    else:
        y = model.node("Sqrt", [model.node("Abs", [real(model, "y", (2, 10, 4), Quantized(model, rng, "uint8"))])])
    model.output(model.node("MatMul", [x, y]), "float32")


def gemm(model: OnnxBuilder, rng: Rng) -> None:
    x = real(model, "x", (3, 10), Quantized(model, rng, storage(rng)))
    transposed = int(rng.integers(0, 2))
    weights = model.constant(rng.normal(size=(7, 10) if transposed else (10, 7)), "float32")
    bias = model.constant(rng.normal(size=7), "float32")
    attributes: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "transB": transposed}
    model.output(model.node("Gemm", [x, weights, bias], **attributes), "float32")


def resize_linear(model: OnnxBuilder, rng: Rng) -> None:
    x = real(model, "x", (1, 2, 5, 6), Quantized(model, rng, storage(rng)))
    corners = pick(rng, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    sizes = model.constant([1, 2, int(rng.integers(3, 14)), int(rng.integers(3, 14))], "int64")
    attributes = {"mode": "linear", "coordinate_transformation_mode": corners}
    model.output(model.node("Resize", [x, "", "", sizes], **attributes), "float32")


def wide_storage(model: OnnxBuilder, rng: Rng) -> None:
    """Writes an operator with 16-bit activations. Octet and ONNX Runtime both compute it in float32."""
    dtype = str(pick(rng, "int16", "uint16"))
    info = np.iinfo(dtype)
    point = int(pick(rng, 0, rng.integers(info.min, info.max)))
    x = model.input("x", "float32", (2, 40))
    parameters = model.quantization(scale(rng) / 100, point, dtype)
    stored = model.node("QuantizeLinear", [x, *parameters])
    model.output(model.node("Relu", [model.node("DequantizeLinear", [stored, *parameters])]), "float32")


def _four_bits(dtype: str) -> Write:
    """Returns a function that writes an operator with 4-bit weights, in blocks along one axis, and real activations."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        depth, units, size = 32, int(rng.integers(1, 9)), int(pick(rng, 16, 32))
        low = -8 if dtype == "int4" else 0
        weights = model.nibbles(rng.integers(low, low + 16, (depth, units)), dtype)
        points = model.nibbles(rng.integers(low, low + 16, (depth // size, units)), dtype)
        scales = model.constant(rng.uniform(0.01, 0.1, (depth // size, units)), "float32")
        w = model.node("DequantizeLinear", [weights, scales, points], axis=0, block_size=size)
        model.output(model.node("MatMul", [model.input("x", "float32", (2, depth)), w]), "float32")

    return write


def matmul_nbits(model: OnnxBuilder, rng: Rng) -> None:
    depth, units, size = 64, int(rng.integers(1, 9)), int(pick(rng, 16, 32))
    blocks = depth // size
    weights = model.constant(rng.integers(0, 256, (units, blocks, size // 2)), "uint8")
    operands = [weights, model.constant(rng.uniform(0.01, 0.1, units * blocks), "float32")]
    if rng.integers(0, 2):
        operands.append(model.constant(rng.integers(0, 256, units * blocks // 2), "uint8"))
    x = model.input("x", "float32", (1, 3, depth))
    attributes = {"K": depth, "N": units, "bits": 4, "block_size": size}
    model.output(model.microsoft("MatMulNBits", [x, *operands], **attributes), "float32")


# Models whose results differ by the rounding of float32 sums and functions.
REAL: dict[str, Write] = {
    "AveragePool": pooling("AveragePool"),
    "BatchNormalization": batch_normalization,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Elu": _unary("Elu", alpha=0.7),
    "Erf": _unary("Erf"),
    "Exp": _unary("Exp"),
    "Gemm": gemm,
    "LayerNormalization": layer_normalization,
    "Log": _positive("Log"),
    "LogSoftmax": _softmax("LogSoftmax"),
    "MatMul": matmul,
    "Pow": _power,
    "ReduceL2": _reduction("ReduceL2"),
    "ReduceMean": _reduction("ReduceMean"),
    "ReduceSum": _reduction("ReduceSum"),
    "Resize": resize_linear,
    "Sigmoid": _unary("Sigmoid"),
    "Softmax": _softmax("Softmax"),
    "Softplus": _unary("Softplus"),
    "Tanh": _unary("Tanh"),
    "com.microsoft.Gelu": _unary("Gelu", "com.microsoft"),
    "com.microsoft.MatMulNBits": matmul_nbits,
    "com.microsoft.QuickGelu": _unary("QuickGelu", "com.microsoft", alpha=1.5),
    "int4 in blocks": _four_bits("int4"),
    "uint4 in blocks": _four_bits("uint4"),
}
# Models whose results equal ONNX Runtime's bit for bit.
ROUNDED_ONCE: dict[str, Write] = {
    "Abs": _unary("Abs"),
    "ArgMax": _place("ArgMax"),
    "ArgMin": _place("ArgMin"),
    "Ceil": _unary("Ceil"),
    "Div": _binary("Div"),
    "Equal": _binary("Equal", "bool"),
    "Floor": _unary("Floor"),
    "GlobalMaxPool": _unary("GlobalMaxPool"),
    "Greater": _binary("Greater", "bool"),
    "HardSigmoid": _unary("HardSigmoid", alpha=0.3, beta=0.4),
    "HardSwish": _unary("HardSwish"),
    "LRN": local_response_normalization,
    "LeakyRelu": _unary("LeakyRelu", alpha=0.3),
    "Less": _binary("Less", "bool"),
    "Max": _binary("Max"),
    "MaxPool": pooling("MaxPool"),
    "Min": _binary("Min"),
    "Neg": _unary("Neg"),
    "PRelu": _binary("PRelu"),
    "Reciprocal": _positive("Reciprocal"),
    "ReduceMax": _reduction("ReduceMax"),
    "ReduceMin": _reduction("ReduceMin"),
    "Round": _unary("Round"),
    "Sqrt": _positive("Sqrt"),
    "Sub": _binary("Sub"),
    "of 16 bits": wide_storage,
}


def _moving(op_type: str, shape: tuple[int, ...], *operands: Any, **attributes: Any) -> Write:
    """Returns a function that writes an operator between conversions of one type or of two types.

    Args:
        operands: integer constants; None for an omitted operand.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        dtype = storage(rng)
        x = Quantized(model, rng, dtype)
        names = ["" if each is None else model.constant(each, "int64") for each in operands]
        value = model.node(op_type, [real(model, "x", shape, x), *names], **attributes)
        leave(model, value, pick(rng, x, Quantized(model, rng, dtype)))

    return write


def split(model: OnnxBuilder, rng: Rng) -> None:
    dtype = storage(rng)
    x = Quantized(model, rng, dtype)
    lengths = model.constant([2, 1, 3], "int64")
    names = ["first", "second", "third"]
    model.node("Split", [real(model, "x", (2, 6, 3), x), lengths], names, axis=1)
    for name in names:
        leave(model, name, pick(rng, x, Quantized(model, rng, dtype)))


def embedding(model: OnnxBuilder, rng: Rng) -> None:
    x, y = Quantized(model, rng, "uint8"), Quantized(model, rng, "uint8")
    table = model.node("DequantizeLinear", [model.constant(rng.integers(0, 256, (30, 7)), "uint8"), *x.names])
    leave(model, model.node("Gather", [table, model.input("x", "int64", (2, 5))]), y)


def conv_1d(model: OnnxBuilder, rng: Rng) -> None:
    shape = (1, int(pick(rng, 1, 4, 9)), int(rng.integers(6, 20)))
    x, y = Quantized(model, rng, "uint8"), Quantized(model, rng, "uint8")
    stored = model.constant(rng.integers(-128, 128, (5, shape[1], 3)), "int8")
    w = model.dequantized(stored, [scale(rng) for _ in range(5)], np.zeros(5), "int8", axis=0)
    result = model.node("Conv", [real(model, "x", shape, x), w], pads=[1, 2], strides=[int(rng.integers(1, 3))])
    leave(model, result, y)


def computed_matmul(model: OnnxBuilder, rng: Rng) -> None:
    dtype = storage(rng)
    a, b = ((2, 3, 4, 9), (2, 3, 9, 5)) if rng.integers(0, 2) else ((1, 4, 9), (1, 9, 6))
    names = [real(model, name, shape, Quantized(model, rng, dtype)) for name, shape in zip("ab", (a, b), strict=True)]
    leave(model, model.node("MatMul", names), Quantized(model, rng, dtype))


def stored_conv_transpose(model: OnnxBuilder, rng: Rng) -> float:
    """Writes a transposed convolution between conversions, and returns its output's scale."""
    x, y = Quantized(model, rng, "uint8"), Quantized(model, rng, "uint8")
    stored, count = model.constant(rng.integers(-128, 128, (3, 4, 3, 2)), "int8"), int(pick(rng, 1, 4))
    scales = [scale(rng) for _ in range(count)] if count > 1 else scale(rng)
    w = model.dequantized(stored, scales, np.zeros(np.shape(scales)), "int8", axis=1)
    attributes: dict[str, Any] = {"strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}
    leave(model, model.node("ConvTranspose", [real(model, "x", (1, 3, 5, 6), x), w], **attributes), y)
    return y.scale


# Models with operators between conversions. Results are equal bit for bit.
MOVED: dict[str, Write] = {
    "Conv of rows": conv_1d,
    "DepthToSpace": _moving("DepthToSpace", (1, 8, 3, 2), blocksize=2, mode="CRD"),
    "Expand": _moving("Expand", (1, 3, 1), [2, 3, 4]),
    "Gather": _moving("Gather", (2, 5, 3), [0, -1, 2], axis=1),
    "Gather of words": embedding,
    "MatMul of two": computed_matmul,
    "Pad": _moving("Pad", (1, 2, 4, 5), [0, 0, 1, 2, 0, 0, 0, 3]),
    "Pad with edges": _moving("Pad", (1, 2, 4, 5), [0, 0, 1, 2, 0, 0, 0, 3], mode="reflect"),
    "Resize": _moving("Resize", (1, 2, 4, 5), None, None, [1, 2, 8, 7], mode="nearest"),
    "Slice": _moving("Slice", (2, 6, 9), [1, -1], [5, -9], [1, 2], [2, -2]),
    "SpaceToDepth": _moving("SpaceToDepth", (1, 3, 4, 6), blocksize=2),
    "Split": split,
    "Tile": _moving("Tile", (1, 3, 2), [1, 2, 3]),
}

CATALOGS = {"real": REAL, "rounded once": ROUNDED_ONCE, "moved": MOVED, "dynamic": DYNAMIC}
