"""Shapes that a model computes from the shape of its input. `--input-shape` gives dimensions that the file leaves open.
The importer computes these operators, so they are neither refused nor left in float.
"""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import coverage, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import Unsupported
from tests.support import evidence
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

SHAPES = {"x": (1, 3, 12, 10)}


def ints(model: OnnxBuilder, *values: int) -> str:
    return model.constant(np.array(values), "int64")


def sizes(model: OnnxBuilder) -> str:
    """Adds the height and the width of `x` as an int64 tensor."""
    return model.node("Slice", [model.node("Shape", ["x"]), ints(model, 2), ints(model, 4)])


def begun(model: OnnxBuilder) -> str:
    model.input("x", "float32", ["N", 3, "H", "W"])
    return model.quantized("x", 0.05, 3, "uint8")


def ended(model: OnnxBuilder, stored: str) -> bytes:
    model.output(model.dequantized(stored, 0.05, 3, "uint8"), "float32")
    return model.build()


def resized_by_computed_scales() -> bytes:
    """Returns a model with the operators that exporters write for `interpolate(x, size=(h * 2, w * 2))`: Cast, Div,
    Floor, Concat.
    """
    model = OnnxBuilder()
    stored = begun(model)
    old = model.node("Cast", [sizes(model)], to=1)
    new = model.node("Floor", [model.node("Mul", [old, model.constant([2.0, 2.0], "float32")])])
    scales = model.node("Concat", [model.constant([1.0, 1.0], "float32"), model.node("Div", [new, old])], axis=0)
    return ended(
        model,
        model.node(
            "Resize",
            [stored, "", scales],
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
    )


def gathered_by_a_computed_row() -> bytes:
    """In the model, Range, Mod and CumSum compute the row."""
    model = OnnxBuilder()
    stored = begun(model)
    height = model.node("Gather", [model.node("Shape", ["x"]), model.constant(2, "int64")])
    row = model.node("Range", [model.constant(0, "int64"), height, model.constant(1, "int64")])
    sums = model.node("CumSum", [row, model.constant(0, "int64")])
    return ended(model, model.node("Gather", [stored, model.node("Mod", [sums, height])], axis=2))


def reshaped_by_products() -> bytes:
    """In the model, ReduceProd, Size and NonZero compute the shape."""
    model = OnnxBuilder()
    stored = begun(model)
    pixels = model.node("ReduceProd", [sizes(model)], axes=[0], keepdims=1)
    channels = model.node("Div", [model.node("Reshape", [model.node("Size", ["x"]), ints(model, 1)]), pixels])
    flat = model.node("Reshape", [stored, model.node("Concat", [channels, pixels], axis=0)])
    positions = model.node("NonZero", [model.node("Equal", [model.node("Shape", ["x"]), ints(model, 1, 0, 0, 0)])])
    return ended(model, model.node("Unsqueeze", [flat, model.node("Reshape", [positions, ints(model, -1)])]))


def padded_by_quantized_sizes() -> bytes:
    """The model has `SAME` padding, as in TensorFlow's networks. The pads are computed in float32, and a quantizer has
    inserted conversions, sums and products of stored values there.
    """
    model = OnnxBuilder()
    stored = begun(model)
    height = model.node("Gather", [model.node("Shape", ["x"]), model.constant(2, "int64")])
    real = model.node("Cast", [height], to=1)
    half = model.dequantized(model.constant(5, "uint8"), 0.1, 0, "uint8")
    rows = model.dequantized(model.quantized(model.node("Mul", [real, half]), 0.5, 0, "uint8"), 0.5, 0, "uint8")
    pad = model.node("Unsqueeze", [model.node("Cast", [rows], to=7), ints(model, 0)])
    zero = ints(model, 0)
    pads = model.node("Concat", [zero, zero, pad, zero, zero, zero, zero, zero], axis=0)
    value = model.dequantized(stored, 0.05, 3, "uint8")
    return ended(model, model.quantized(model.node("Pad", [value, pads]), 0.05, 3, "uint8"))


@pytest.mark.parametrize(
    "make", [resized_by_computed_scales, gathered_by_a_computed_row, reshaped_by_products, padded_by_quantized_sizes]
)
def test_computed_shapes_are_those_of_onnx_runtime(make: object) -> None:
    data = make()  # type: ignore[operator]
    imported = import_model(data, shapes=SHAPES)
    x = np.random.default_rng(0).normal(0, 3, SHAPES["x"]).astype(np.float32)
    ours = oracle.run(imported.module, get_mode(ONNXRUNTIME), [x])
    evidence.compare(imported, ONNXRUNTIME, [ours], [Reference(data, optimized=True)([x])])
    assert len(coverage.report(imported.module)["floating"]) == 2, "only the conversions at the ends are real"


def test_what_depends_on_the_input_s_values_is_named() -> None:
    model = OnnxBuilder()
    model.input("x", "int64", [4])
    model.output(model.node("NonZero", ["x"], ["places"]), "int64")
    with pytest.raises(Unsupported, match="NonZero #0 computes its input 0 at run time"):
        import_model(model.build())
