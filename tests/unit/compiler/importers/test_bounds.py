"""The bounds of a model's inputs are derived from the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.bounds import bounded
from service.compiler.importers.onnx.importer import import_model
from service.core.models.signature import Bounds
from tests.support.onnx_builder import OnnxBuilder

WORDS, SIDES, WIDTH = 40, 2, 4
Body = Callable[[OnnxBuilder, str], str]


def table(builder: OnnxBuilder, rows: int) -> str:
    stored = builder.constant(np.arange(rows * WIDTH).reshape(rows, WIDTH) % 100, "int8")
    return builder.dequantized(stored, 0.5, 0, "int8")


def looked_up(rows: int) -> Body:
    return lambda builder, x: builder.node("Gather", [table(builder, rows), x])


def in_two_tables(builder: OnnxBuilder, x: str) -> str:
    return builder.node("Add", [looked_up(WORDS)(builder, x), looked_up(SIDES)(builder, x)])


def reshaped(builder: OnnxBuilder, x: str) -> str:
    return looked_up(WORDS)(builder, builder.node("Reshape", [x, builder.constant([6], "int64")]))


def subtracted_from_one(builder: OnnxBuilder, x: str) -> str:
    real = builder.node("Cast", [builder.node("Unsqueeze", [x, builder.constant([1], "int64")])], to=1)
    hidden = builder.node("Sub", [builder.constant(1.0, "float32"), real])
    return builder.node("Mul", [hidden, builder.constant(-10000.0, "float32")])


def compared(builder: OnnxBuilder, x: str) -> str:
    hidden = builder.node("Equal", [x, builder.constant(0, "int64")])
    return builder.node("Where", [hidden, builder.constant(-1e4, "float32"), builder.constant(0.0, "float32")])


def made_true(builder: OnnxBuilder, x: str) -> str:
    shown = builder.node("Cast", [x], to=9)
    return builder.node("Where", [shown, builder.constant(0.0, "float32"), builder.constant(-1e4, "float32")])


def added(builder: OnnxBuilder, x: str) -> str:
    return builder.node("Cast", [builder.node("Add", [x, builder.constant(7, "int64")])], to=1)


def quantized(builder: OnnxBuilder, x: str) -> str:
    stored = builder.quantized(builder.node("Transpose", [x], perm=[1, 0]), 0.5, 10, "uint8")
    return builder.dequantized(stored, 0.5, 10, "uint8")


def doubled(builder: OnnxBuilder, x: str) -> str:
    return quantized(builder, builder.node("Mul", [x, builder.constant(2.0, "float32")]))


@pytest.mark.parametrize(
    ("body", "dtype", "expected"),
    [
        (looked_up(WORDS), "int64", Bounds(0, WORDS - 1)),
        (looked_up(WORDS), "int32", Bounds(0, WORDS - 1)),
        (reshaped, "int64", Bounds(0, WORDS - 1)),
        (in_two_tables, "int64", Bounds(0, SIDES - 1)),
        (subtracted_from_one, "int64", Bounds(0, 1)),
        (compared, "int64", Bounds(0, 1)),
        (made_true, "int64", Bounds(0, 1)),
        (added, "int64", None),
        (quantized, "float32", Bounds(-5.0, 122.5)),
        (doubled, "float32", None),
    ],
)
def test_bounds_of_an_input(body: Body, dtype: str, expected: Bounds | None) -> None:
    builder = OnnxBuilder()
    y = body(builder, builder.input("x", dtype, [2, 3]))
    # The importer accepts only quantized models.
    last = builder.dequantized(builder.quantized(y, 0.5, 0, "int8"), 0.5, 0, "int8")
    builder.output(last, "float32")
    imported = import_model(builder.build())
    assert bounded(imported.signature, imported.module).inputs[0].bounds == expected
