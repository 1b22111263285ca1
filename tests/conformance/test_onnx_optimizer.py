"""Float operators between conversions. ONNX Runtime quantizes these operators too, and compiled code gives ONNX
Runtime's results bit for bit.

Each model is written, imported, compiled with the target's kernels and run. The reference is ONNX Runtime's optimized
session.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle, printer
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_optimizer import HOST, MODE, Rng, Write, compare, filters, pair
from tests.support.onnx_reference import Reference
from tests.support.selected import run_selected


def convolution(form: str) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = pair(model, model.input("x", "float32", (1, 3, 6, 6)), 0.0513, 128)
        w = filters(model, rng, (4, 3, 3, 3), 0, form)
        b = model.constant(rng.normal(0, 1, 4), "float32")
        model.output(pair(model, model.node("Conv", [x, w, b]), 0.0617, 110), "float32")

    return write


def dense(form: str, bias: bool = True) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = pair(model, model.input("x", "float32", (10, 16)), 0.0513, 128)
        w = filters(model, rng, (12, 16), 0, form)
        b = [model.constant(rng.normal(0, 1, 12), "float32")] if bias else []
        model.output(pair(model, model.node("Gemm", [x, w, *b], transB=1), 0.0617, 110), "float32")

    return write


def product(
    shape: Sequence[int | str] = (2, 5, 16),
    form: str = "",
    row: Sequence[int] = (12,),
    types: tuple[str, str, str] = ("uint8", "int8", "uint8"),
    activation: str = "",
    first: bool = False,
    point: int = 5,
) -> Write:
    """Returns a model of MatMul, Add of a constant, an activation and QuantizeLinear."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = pair(model, model.input("x", "float32", shape), 0.0513, 120 if types[0] == "uint8" else -3, types[0])
        y = model.node("MatMul", [x, filters(model, rng, (16, 12), 1, form, types[1])])
        constant = model.constant(rng.normal(0, 1, row), "float32")
        y = model.node("Add", [constant, y] if first else [y, constant])
        y = model.node(activation, [y]) if activation else y
        model.output(pair(model, y, 0.0617, point, types[2]), "float32")

    return write


def plain_product(types: tuple[str, str, str]) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = pair(model, model.input("x", "float32", (2, 5, 16)), 0.1, 120 if types[0] == "uint8" else -3, types[0])
        y = model.node("MatMul", [x, filters(model, rng, (16, 12), 1, "", types[1])])
        model.output(pair(model, y, 0.05, 5, types[2]), "float32")

    return write


def real_weights(op_type: str, shape: Sequence[int], weights: Sequence[int], bias: bool = True) -> Write:
    """Returns a model of a layer between conversions. The file does not quantize its weights."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = pair(model, model.input("x", "float32", shape), 0.0513, 128)
        count = weights[0] if op_type == "Conv" else weights[1]
        w = model.constant(rng.normal(0, 1, weights), "float32")
        row = model.constant(rng.normal(0, 1, count), "float32")
        if op_type == "MatMul":
            y = model.node("Add", [model.node("MatMul", [x, w]), row])
        else:
            y = model.node(op_type, [x, w, row] if bias else [x, w])
        model.output(pair(model, y, 0.0617, 100), "float32")

    return write


def padded(*value: float, own: Sequence[int] = ()) -> Write:
    """Returns a model of a Pad of zeros and a convolution. The file does not quantize its weights."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = pair(model, model.input("x", "float32", (1, 3, 6, 6)), 0.0513, 128)
        sizes = (0, 0, 1, 0, 0, 0, 2, 1)
        names = [model.constant(each, "float32") for each in value]
        x = model.node("Pad", [x, model.constant(sizes, "int64"), *names])
        w, b = model.constant(rng.normal(0, 1, (4, 3, 3, 3)), "float32"), model.constant(rng.normal(0, 1, 4), "float32")
        attributes = {"pads": list(own)} if own else {}
        model.output(pair(model, model.node("Conv", [x, w, b], None, "", **attributes), 0.0617, 100), "float32")

    return write


def padded_pool(stored: bool, identity: bool = False) -> Write:
    """Returns a model of a Pad of zeros and a MaxPool. If nothing is between the two, ONNX Runtime's optimizer makes
    the pool ignore the zeros.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = model.input("x", "float32", (1, 3, 6, 6))
        x = model.node(
            "Pad", [pair(model, x, 0.0513, 128) if stored else x, model.constant((0, 0, 1, 0, 0, 0, 2, 1), "int64")]
        )
        x = model.node("Identity", [x]) if identity else x
        y = model.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2])
        model.output(pair(model, y, 0.0417, 100) if stored else y, "float32")

    return write


def pairs(*steps: tuple[float, int, str], read_twice: bool = False) -> Write:
    """Returns a model with successive pairs of QuantizeLinear and DequantizeLinear."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = model.input("x", "float32", (2, 40))
        for step in steps:
            x = pair(model, x, *step)
            if read_twice and step is steps[0]:
                model.output(model.node("Neg", [x]), "float32")
        model.output(x, "float32")

    return write


def pairs_around_a_product(model: OnnxBuilder, rng: Rng) -> None:
    x = pair(model, pair(model, model.input("x", "float32", (4, 16)), 0.05, 128), 0.031, 100)
    y = model.node("MatMul", [x, filters(model, rng, (16, 20), 1, "")])
    model.output(pair(model, pair(model, y, 0.05, 128), 0.031, 100), "float32")


def extreme(op_type: str, dtype: str, scales: tuple[float, float, float]) -> Write:
    """Returns a model of a quantized operator of two operands, whose results do not fit 32 bits."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        bounds = np.iinfo(dtype)
        points = [int(point) for point in rng.integers(bounds.min, bounds.max + 1, 3)]
        types = [model.quantization(scale, point, dtype) for scale, point in zip(scales, points, strict=True)]
        a, b = (model.input(name, dtype, (1, 5, 67)) for name in "ab")
        model.output(model.microsoft(op_type, [a, *types[0], b, *types[1], *types[2]]), dtype)

    return write


def infinite_scale(has_weights: bool) -> Write:
    """Returns a model of a product of stored zeros. The scale of the product exceeds float32 in steps of the output, so
    that the result is NaN before it is stored.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        types = [model.quantization(scale, point, "uint8") for scale, point in ((1e20, 0), (0.008, 122))]
        a = model.node("QuantizeLinear", [model.input("a", "float32", (5, 67)), *types[0]])
        weights = rng.integers(0, 256, (67, 9))
        b = model.constant(weights, "uint8") if has_weights else model.input("b", "uint8", weights.shape)
        model.output(model.node("QLinearMatMul", [a, *types[0], b, *types[0], *types[1]]), "uint8")

    return write


def clipped_softmax(dtype: str, scale: float, point: int) -> Write:
    """Returns a model of a softmax. The scale of its output is so small that ONNX Runtime's products overflow
    float32.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        types = model.quantization(0.05, 7, dtype), model.quantization(scale, point, dtype)
        x = model.input("x", dtype, (8, 2))
        model.output(model.microsoft("QLinearSoftmax", [x, *types[0], *types[1]], axis=1, opset=13), dtype)

    return write


def several_scales(axis: int, block: int, dtype: str) -> Write:
    """Returns a model of activations with one scale for each index of an axis, or for each block."""

    def write(model: OnnxBuilder, rng: Rng) -> None:
        shape = (2, 4, 8)
        count = [size // block if index == axis and block else size for index, size in enumerate(shape)]
        extents = count if block else [shape[axis]]
        scale = model.constant(rng.uniform(0.01, 0.1, extents), "float32")
        point = model.constant(rng.integers(0, 100, extents), dtype)
        stored = model.node(
            "QuantizeLinear", [model.input("x", "float32", shape), scale, point], axis=axis, block_size=block
        )
        model.output(model.node("DequantizeLinear", [stored, scale, point], axis=axis, block_size=block), "float32")

    return write


def mean(op_type: str, types: tuple[str, str], shape: Sequence[int] = (2, 3, 7, 5), **attributes: Any) -> Write:
    """Returns a model of a mean between values of two types, which ONNX Runtime computes in float32. The scales are
    nearly equal, so that many means are halfway between two steps.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        points = [128 if dtype == "uint8" else 0 for dtype in types]
        x = pair(model, model.input("x", "float32", shape), 0.0055, points[0], types[0])
        y = model.node(op_type, [x], **attributes)
        model.output(pair(model, y, 0.0055, points[1], types[1]), "float32")

    return write


def pooled(channels: int, *front: str) -> Write:
    """Returns a model that computes the mean of a real image. ONNX Runtime adds the elements in memory order, and may
    store channels in blocks of 16.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = model.input("x", "float32", (2, channels, 7, 5))
        for op_type in front:
            weights = [model.constant(rng.normal(0, 1, (channels, channels, 1, 1)), "float32")]
            x = model.node(op_type, [x, *(weights if op_type == "Conv" else [])])
        model.output(model.node("GlobalAveragePool", [x]), "float32")

    return write


def cubic(scales: tuple[float, float], **attributes: Any) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = pair(model, model.input("x", "float32", (1, 3, 5, 7)), 0.03, 3, "int8")
        sizes = model.constant([1, 1, *scales], "float32")
        y = model.node("Resize", [x, "", sizes], mode="cubic", **attributes)
        model.output(pair(model, y, 0.03, -4, "int8"), "float32")

    return write


TURNS = (("uint8", "int8"), ("int8", "uint8"))
REAL: dict[str, Write] = {
    **{f"GlobalAveragePool, {types}": mean("GlobalAveragePool", types) for types in TURNS},
    **{f"GlobalAveragePool, 2x2, {types}": mean("GlobalAveragePool", types, (2, 3, 2, 2)) for types in TURNS},
    **{f"ReduceMean, {types}": mean("ReduceMean", types, axes=[2, 3], keepdims=1) for types in TURNS},
    **{f"AveragePool, whole, {types}": mean("AveragePool", types, kernel_shape=[7, 5]) for types in TURNS},
    "AveragePool": mean("AveragePool", TURNS[0], kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1]),
    "AveragePool, padding counted": mean(
        "AveragePool", TURNS[0], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    **{
        f"GlobalAveragePool, {channels} channels, {' and '.join(front) or 'input'}": pooled(channels, *front)
        for channels in (16, 24)
        for front in ((), ("Relu",), ("Conv",), ("Conv", "Relu"), ("GlobalAveragePool",))
    },
    "cubic": cubic((1.5, 3.0)),
    "cubic, smaller": cubic((0.6, 0.7)),
    "cubic, rows alone": cubic((1.3, 1.0)),
    "cubic, without what is outside": cubic((2.0, 1.7), exclude_outside=1),
    "cubic, corners": cubic((2.0, 1.7), coordinate_transformation_mode="align_corners", cubic_coeff_a=-0.5),
}
OPSET_21: dict[str, Write] = {
    f"{dtype}, {axis} {block}": several_scales(axis, block, dtype)
    for dtype in ("uint8", "int8")
    for axis, block in ((0, 0), (1, 0), (2, 0), (1, 2), (2, 4))
}
EXTREMES: dict[str, Write] = {
    **{
        f"{op_type}, {dtype}, {scales}": extreme(op_type, dtype, scales)
        for op_type in ("QLinearAdd", "QLinearMul")
        for dtype in ("uint8", "int8")
        for scales in ((200.0, 0.01, 1e-5), (3e38, 3e38, 1e-38))
    },
    "an infinite scale": infinite_scale(has_weights=False),
    "an infinite scale, weights": infinite_scale(has_weights=True),
    "softmax, uint8": clipped_softmax("uint8", 0.0021, 0),
    "softmax, uint8, a zero point": clipped_softmax("uint8", 1e-30, 3),
    "softmax, int8": clipped_softmax("int8", 0.0021, -128),
    "softmax, int8, a zero point": clipped_softmax("int8", 1e-30, 3),
}
MODELS: dict[str, Write] = {
    **{f"Conv, {form}": convolution(form) for form in ("pair", "identity")},
    **{f"Gemm, {form}": dense(form) for form in ("pair", "identity", "transposed")},
    "Gemm, pair, no bias": dense("pair", bias=False),
    "MatMul, moved pair": product(form="moved pair"),
    "MatMul, transposed": product(form="transposed"),
    "MatMul and Add": product(),
    "MatMul and Add, matrix": product((10, 16)),
    "MatMul and Add, row": product((16,)),
    "MatMul and Add, four dimensions": product((2, 3, 4, 16)),
    "MatMul and Add, open batch": product(("N", 5, 16)),
    "MatMul and Add, matrix of open batch": product(("N", 16)),
    "MatMul and Add, the constant first": product(first=True),
    "MatMul and Add, row of a matrix": product((10, 16), row=(1, 12)),
    "MatMul and Add, int8": product(types=("int8", "int8", "int8")),
    "MatMul and Add, uint8 weights": product(types=("uint8", "uint8", "uint8")),
    "MatMul and Add, uint8 to int8": product((10, 16), types=("uint8", "int8", "int8")),
    "MatMul and Add, int8 by uint8": product(types=("int8", "uint8", "int8")),
    "MatMul and Add, Relu": product((10, 16), activation="Relu"),
    "MatMul and Add, three dimensions, Relu": product(activation="Relu"),
    "MatMul and Add, redundant Relu": product((2000, 16), activation="Relu", point=0),
    "MatMul and Add, three dimensions, redundant Relu": product((20, 100, 16), activation="Relu", point=0),
    "MatMul, uint8 to int8": plain_product(("uint8", "int8", "int8")),
    "MatMul, int8 to uint8": plain_product(("int8", "int8", "uint8")),
    "MatMul, int8 by uint8": plain_product(("int8", "uint8", "int8")),
    "Conv, real weights": real_weights("Conv", (1, 3, 7, 7), (4, 3, 3, 3)),
    "Conv, real weights, no bias": real_weights("Conv", (1, 3, 7, 7), (4, 3, 3, 3), bias=False),
    "Pad and Conv, real weights": padded(),
    "Pad of a value and Conv, real weights": padded(0.0, own=(1, 0, 0, 1)),
    "Pad of another value and Conv, real weights": padded(0.5),
    "Pad and MaxPool": padded_pool(stored=True),
    "Pad and MaxPool of real values": padded_pool(stored=False),
    "Pad, Identity and MaxPool": padded_pool(stored=True, identity=True),
    "Gemm, real weights": real_weights("Gemm", (5, 16), (16, 12)),
    "MatMul and Add, real weights": real_weights("MatMul", (5, 16), (16, 12)),
    "two pairs": pairs((0.05, 128, "uint8"), (0.031, 100, "uint8")),
    "two pairs of int8": pairs((0.05, 1, "int8"), (0.031, -4, "int8")),
    "three pairs": pairs((0.05, 128, "uint8"), (0.031, 100, "uint8"), (0.04, 90, "uint8")),
    "two pairs of two types": pairs((0.05, 128, "uint8"), (0.031, 3, "int8")),
    "two pairs, read between": pairs((0.05, 128, "uint8"), (0.031, 100, "uint8"), read_twice=True),
    "two pairs around a product": pairs_around_a_product,
}


STORED = [name for name in MODELS if name.endswith((" pair", " pair, no bias"))]


@pytest.mark.parametrize("name", MODELS)
def test_what_the_optimizer_quantizes(name: str, tmp_path: Path) -> None:
    compare(MODELS[name], tmp_path)


@pytest.mark.parametrize("name", STORED)
def test_constants_behind_conversions_are_stored_values(name: str) -> None:
    """No product of real values remains in the model."""
    model = OnnxBuilder()
    MODELS[name](model, np.random.default_rng(0))
    text = printer.text_of(import_model(model.build()).module)
    assert "qnn.real_" not in text
    assert text.count("qnn.quantize") == 1  # the conversion of the input


@pytest.mark.parametrize("name", REAL)
def test_real_values_in_one_order(name: str, tmp_path: Path) -> None:
    compare(REAL[name], tmp_path)


@pytest.mark.parametrize("name", EXTREMES)
def test_what_leaves_32_bits(name: str, tmp_path: Path) -> None:
    compare(EXTREMES[name], tmp_path, always_compiles=True)


@pytest.mark.parametrize("name", OPSET_21)
def test_activations_with_several_scales(name: str, tmp_path: Path) -> None:
    compare(OPSET_21[name], tmp_path, opset=21)


@pytest.mark.parametrize(
    ("shape", "kernel", "pads"),
    [((2, 3, 6), (3,), [1, 1]), ((2, 3, 6, 6), (1, 3), [0, 1, 0, 1]), ((3, 2, 5, 5), (3, 1), [1, 0, 1, 0])],
)
def test_convolutions_that_are_padded_on_one_axis(
    shape: tuple[int, ...], kernel: tuple[int, ...], pads: list[int], tmp_path: Path
) -> None:
    """Several samples of float32 values are compared. Only the order of the sums differs."""
    model, rng = OnnxBuilder(), np.random.default_rng(0)
    w = model.constant(rng.normal(0, 1, (4, shape[1], *kernel)), "float32")
    x = model.input("x", "float32", shape)
    model.output(model.node("Conv", [x, w], kernel_shape=list(kernel), pads=pads), "float32")
    data = model.build()
    imported = import_model(data)
    sample = [rng.normal(0, 1, shape).astype(np.float32)]
    (actual,) = run_selected(imported.module, HOST, ONNXRUNTIME, sample, tmp_path)[1]
    np.testing.assert_array_equal(actual, oracle.run(imported.module, MODE, sample)[0])
    np.testing.assert_allclose(actual, Reference(data, optimized=True)(sample)[0], rtol=1e-5, atol=1e-5)
