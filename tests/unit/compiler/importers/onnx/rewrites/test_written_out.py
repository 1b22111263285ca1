"""Dequantizations that a file writes as Cast, Sub and Mul keep their bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.facts import facts_of
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes import simplify
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

ROWS, COLUMNS = 24, 10
FLOAT, INT32, FLOAT16 = 1, 6, 10
RNG = np.random.default_rng(0)
STORED = RNG.integers(-128, 128, (ROWS, COLUMNS))
MODE = get_mode(ONNXRUNTIME)
Write = Callable[[OnnxBuilder], str]


def scale(model: OnnxBuilder, *shape: int) -> str:
    return model.constant(RNG.uniform(0.01, 0.1, shape), "float32")


def cast(model: OnnxBuilder, x: str, to: int = FLOAT) -> str:
    return model.node("Cast", [x], to=to)


def plain(*shape: int) -> Write:
    return lambda model: model.node("Mul", [cast(model, model.constant(STORED, "int8")), scale(model, *shape)])


def swapped(model: OnnxBuilder) -> str:
    return model.node("Mul", [scale(model, 1, COLUMNS), cast(model, model.constant(STORED, "int8"))])


def with_point(model: OnnxBuilder) -> str:
    point = model.constant(RNG.integers(0, 256, (1, COLUMNS)), "float32")
    real = cast(model, model.constant(STORED + 128, "uint8"))
    return model.node("Mul", [model.node("Sub", [real, point]), scale(model, COLUMNS)])


def with_integer_point(model: OnnxBuilder) -> str:
    wide = cast(model, model.constant(STORED + 128, "uint8"), INT32)
    return model.node("Mul", [cast(model, model.node("Sub", [wide, model.constant(131, "int32")])), scale(model)])


def transposed(model: OnnxBuilder) -> str:
    real = model.node("Transpose", [cast(model, model.constant(STORED.T, "int8"))], perm=[1, 0])
    return model.node("Mul", [real, scale(model, COLUMNS)])


def transposed_later(model: OnnxBuilder) -> str:
    product = model.node("Mul", [cast(model, model.constant(STORED.T, "int8")), scale(model, COLUMNS, 1)])
    return model.node("Transpose", [product])


def of_4_bits(model: OnnxBuilder) -> str:
    return model.node("Mul", [cast(model, model.nibbles(STORED % 16, "uint4")), scale(model, 1, COLUMNS)])


WEIGHTS: dict[str, Write] = {
    "one scale": plain(),
    "a scale for each column": plain(1, COLUMNS),
    "the scale first": swapped,
    "a zero point for each column": with_point,
    "an integer zero point": with_integer_point,
    "transposed before the product": transposed,
    "transposed after the product": transposed_later,
    "4 bits": of_4_bits,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_product_reads_the_stored_weights(name: str) -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", (3, ROWS))
    model.output(model.node("MatMul", [x, WEIGHTS[name](model)]), "float32")
    file = model.build(21)
    imported = import_model(file)
    given = [RNG.standard_normal((3, ROWS)).astype(np.float32)]
    (expected,) = Reference(file, optimized=True)(given)
    (actual,) = oracle.run(imported.module, MODE, given)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    weights = facts_of(imported).weights
    assert weights is not None
    assert weights.storage[0].lstrip("uint") == ("4" if name == "4 bits" else "8")
    names = [graph.name_of(value) for _, value in graph.bindings(graph.main_of(simplify(imported.module, MODE).module))]
    assert names.count("qnn.block_matmul") == 1


@pytest.mark.parametrize("name", ["one scale", "a scale for each column", "a zero point for each column"])
def test_rows_of_a_table_are_dequantized_when_they_are_read(name: str) -> None:
    check_table(WEIGHTS[name])


def test_a_table_may_have_a_scale_for_each_row() -> None:
    check_table(plain(ROWS, 1))


def check_table(write: Write) -> None:
    model = OnnxBuilder()
    indices = model.input("i", "int64", (2, 5))
    model.output(model.node("Gather", [write(model), indices]), "float32")
    file = model.build(21)
    given = [RNG.integers(-ROWS, ROWS, (2, 5))]
    (expected,) = Reference(file, optimized=True)(given)
    simplified = simplify(import_model(file).module, MODE).module
    np.testing.assert_array_equal(oracle.run(simplified, MODE, given)[0], expected)
    real = [
        array
        for _, value in graph.bindings(graph.main_of(simplified))
        for array in graph_constants(value)
        if array.dtype == np.float32
    ]
    assert max((array.size for array in real), default=0) <= ROWS  # the table itself stays in 8 bits


def graph_constants(value: object) -> list[np.ndarray]:
    return [
        arg.value.numpy() for arg in getattr(value, "args", ()) if hasattr(arg, "value") and hasattr(arg.value, "numpy")
    ]


def half_weights(model: OnnxBuilder) -> str:
    """Writes weights of float16: a product whose steps are rounded to 16 bits."""
    real = cast(model, model.constant(STORED, "int8"), FLOAT16)
    real = model.node("Sub", [real, model.constant(3, "float16")])
    return model.node("Mul", [real, model.constant(RNG.uniform(0.01, 0.1, (1, COLUMNS)), "float16")])


def dequantized_half(model: OnnxBuilder) -> str:
    scales = model.constant(RNG.uniform(0.01, 0.1, COLUMNS), "float16")
    return model.node("DequantizeLinear", [model.constant(STORED, "int8"), scales], axis=1)


@pytest.mark.parametrize("write", [half_weights, dequantized_half])
@pytest.mark.parametrize("op_type", ["MatMul", "Gather"])
def test_weights_of_float16_keep_their_bits(write: Write, op_type: str) -> None:
    model = OnnxBuilder()
    given: list[np.ndarray]
    if op_type == "MatMul":
        model.output(model.node("MatMul", [model.input("x", "float16", (3, ROWS)), write(model)]), "float16")
        given = [RNG.standard_normal((3, ROWS)).astype(np.float16)]
    else:
        model.output(model.node("Gather", [write(model), model.input("i", "int64", (2, 5))]), "float16")
        given = [RNG.integers(-ROWS, ROWS, (2, 5))]
    file = model.build(21)
    imported = import_model(file)
    (expected,) = Reference(file, optimized=True)(given)
    (actual,) = oracle.run(imported.module, MODE, given)
    np.testing.assert_array_equal(actual, expected)
    assert facts_of(imported).computes == "weights of 8 bits, computes in float32"


@pytest.mark.parametrize("factor", [-0.5, 0.0, np.inf])
def test_a_factor_that_is_no_scale_stays_a_product(factor: float) -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", (3, ROWS))
    product = model.node("Mul", [cast(model, model.constant(STORED, "int8")), model.constant(factor, "float32")])
    model.output(model.node("MatMul", [x, product]), "float32")
    assert facts_of(import_model(model.build())).weights is None


def test_readers_of_the_integers_keep_them() -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", (3, ROWS))
    real = cast(model, model.constant(STORED, "int8"))
    scaled = model.node("Mul", [real, scale(model)])
    total = model.node("Add", [model.node("MatMul", [x, scaled]), model.node("MatMul", [x, real])])
    model.output(total, "float32")
    file, given = model.build(), [RNG.standard_normal((3, ROWS)).astype(np.float32)]
    (expected,) = Reference(file, optimized=True)(given)
    (actual,) = oracle.run(import_model(file).module, MODE, given)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
