"""A product between Casts to bfloat16 and back rounds its operands; other operators do not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import DTYPES, OnnxBuilder

BFLOAT16, FLOAT = DTYPES["bfloat16"], DTYPES["float32"]
WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)


def rounded(builder: OnnxBuilder, name: str) -> str:
    return builder.node("Cast", [builder.node("Cast", [name], to=BFLOAT16)], to=FLOAT)


def stored(builder: OnnxBuilder, values: np.ndarray) -> str:
    return builder.node("Cast", [builder.constant(values.astype(ml_dtypes.bfloat16))], to=FLOAT)


def products(builder: OnnxBuilder) -> dict[str, str]:
    """Returns the products of the imported model, with the dtype to which their operands are rounded."""
    found = {}
    for _, value, operation in graph.operations(graph.main_of(import_model(builder.build()).module)):
        assert getattr(getattr(value, "op", None), "name", "") != "relax.astype"
        if operation is not None:
            found[operation.name] = str(operation.attr("operand_dtype"))
    return found


def made(op_type: str, lhs: str, rhs: str, builder: OnnxBuilder) -> dict[str, str]:
    builder.node(op_type, [lhs, rhs], ["y"])
    builder.output("y", "float32")
    return products(builder)


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
@pytest.mark.parametrize("weights", ["stored", "cast"])
def test_both_operands_are_rounded(op_type: str, weights: str) -> None:
    builder = OnnxBuilder()
    x = rounded(builder, builder.input("x", "float32", [2, 4]))
    right = stored(builder, WEIGHTS) if weights == "stored" else rounded(builder, builder.constant(WEIGHTS))
    assert made(op_type, x, right, builder) == {"qnn.real_matmul": "bfloat16"}


def test_a_convolution_is_rounded() -> None:
    builder = OnnxBuilder()
    x = rounded(builder, builder.input("x", "float32", [1, 2, 5, 5]))
    assert made("Conv", x, stored(builder, np.ones((3, 2, 3, 3))), builder) == {"qnn.real_conv2d": "bfloat16"}


def test_two_computed_matrices_are_rounded() -> None:
    builder = OnnxBuilder()
    lhs, rhs = builder.input("x", "float32", [2, 4, 4]), builder.input("z", "float32", [2, 4, 4])
    assert made("MatMul", rounded(builder, lhs), rounded(builder, rhs), builder) == {"qnn.real_matmul": "bfloat16"}


def test_a_stored_constant_next_to_an_unrounded_operand_is_float() -> None:
    builder = OnnxBuilder()
    x = builder.input("x", "float32", [2, 4])
    assert made("MatMul", x, stored(builder, WEIGHTS), builder) == {"qnn.real_matmul": "float32"}


def test_rounded_values_with_other_readers_are_computed() -> None:
    builder = OnnxBuilder()
    x = rounded(builder, builder.input("x", "float32", [2, 4]))
    builder.node("Relu", [x], ["y"])
    builder.output("y", "float32")
    value = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    (result,) = oracle.run(import_model(builder.build()).module, get_mode(ONNXRUNTIME), [value])
    np.testing.assert_array_equal(result, np.maximum(value.astype(ml_dtypes.bfloat16).astype(np.float32), 0))
