"""Operators on real values between quantized ones: LiteRT's answers within rounding, the oracle's exactly."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler import coverage
from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.errors import Unsupported
from service.core.numerics import LITERT_REFERENCE
from tests.support import litert
from tests.support.qnn_models import compile_and_run_all
from tests.support.tflite_builder import Array, ModelBuilder, Quant
from tests.support.tflite_real import OPERATORS, network

# Float32 sums of some hundred terms, and exp of a C library, against float64.
RELATIVE, ABSOLUTE = 2e-5, 2e-6
X = Quant(0.05, -3)


@pytest.mark.parametrize("name", OPERATORS)
def test_real_operator_is_litert_within_rounding(name: str) -> None:
    data = network(name, stored=True)
    imported, loaded = import_model(data), litert.interpreter(data)
    inputs = litert.random_inputs(loaded, np.random.default_rng(1))
    (expected,) = litert.run(loaded, inputs)
    (actual,) = oracle.run(imported.module, get_mode(LITERT_REFERENCE), inputs)
    np.testing.assert_allclose(actual, expected, RELATIVE, ABSOLUTE)
    (compiled,) = compile_and_run_all(canonicalize(imported.module, get_mode(LITERT_REFERENCE)), inputs)
    np.testing.assert_array_equal(compiled, actual)
    assert len(coverage.report(imported.module)["floating"]) > 1, "more than the conversion is reported"


def _half_weights(weights: Array | None) -> bytes:
    """A product with float16 weights, which are made float32; with none, they are an input."""
    builder = ModelBuilder()
    x, real = builder.tensor("x", (1, 4), np.int8, X), builder.tensor("real", (1, 4), np.float32)
    half = builder.tensor("half", (4,), np.float16) if weights is None else builder.constant("half", weights)
    single, y = builder.tensor("single", (4,), np.float32), builder.tensor("y", (1, 4), np.float32)
    builder.operator("DEQUANTIZE", [x], [real])
    builder.operator("DEQUANTIZE", [half], [single], version=3)
    builder.operator("MUL", [real, single], [y], schema.MulOptionsT())
    return builder.build([x, half] if weights is None else [x], [y])


def test_float16_weights_equal_litert() -> None:
    """Subnormal ones, too."""
    data = _half_weights(np.array([0.1, -6e-8, -1e-5, 65504], np.float16))
    inputs = [np.array([[-128, -2, 7, 127]], np.int8)]
    (ours,) = oracle.run(import_model(data).module, get_mode(LITERT_REFERENCE), inputs)
    np.testing.assert_array_equal(ours, litert.run(litert.interpreter(data), inputs)[0])


def test_float16_activations_are_refused() -> None:
    with pytest.raises(Unsupported, match="DEQUANTIZE #1 computes its input 0"):
        import_model(_half_weights(None))
