"""Operators on real values between quantized ones. They equal the oracle's results exactly, and LiteRT's within
rounding.
"""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import coverage, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.models.arrays import Array
from tests.support import evidence, litert
from tests.support.conformance import assert_compiled_equals
from tests.support.qnn_models import compile_and_run_all
from tests.support.tflite_builder import ModelBuilder, Quant, serialize
from tests.support.tflite_real import OPERATORS, network

# LiteRT computes float32 sums of some hundred terms, and exp of the C library. The oracle computes in float64.
RELATIVE, ABSOLUTE = 2e-5, 2e-6
X = Quant(0.05, -3)


@pytest.mark.parametrize("name", OPERATORS)
def test_real_operator_is_litert_within_rounding(name: str) -> None:
    data = network(name, stored=True)
    imported, loaded = import_model(data), litert.interpreter(data)
    inputs = litert.random_inputs(loaded, np.random.default_rng(1))
    (expected,) = litert.run(loaded, inputs)
    (actual,) = oracle.run(imported.module, get_mode(LITERT_REFERENCE), inputs)
    evidence.record(imported, LITERT_REFERENCE, [[actual]], [[expected]])
    np.testing.assert_allclose(actual, expected, RELATIVE, ABSOLUTE)
    (compiled,) = compile_and_run_all(canonicalize(imported.module, get_mode(LITERT_REFERENCE)), inputs)
    np.testing.assert_array_equal(compiled, actual)
    assert len(coverage.report(imported.module)["floating"]) > 1, "more than the conversion is reported"


@pytest.mark.parametrize("stored", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPERATORS)
def test_built_real_operator_equals_the_oracle(name: str, stored: bool) -> None:
    """Builds for all instructions of this machine, because a fused multiply-add would round only once."""
    module, rng = import_model(network(name, stored=stored)).module, np.random.default_rng(2)
    loaded = litert.interpreter(network(name, stored=stored))
    inputs = [litert.random_inputs(loaded, rng) for _ in range(3)]
    expected = [oracle.run(module, get_mode(LITERT_REFERENCE), sample) for sample in inputs]
    assert_compiled_equals(module, LITERT_REFERENCE, inputs, [], expected)


def _half_weights(weights: Array | None) -> bytes:
    """Returns a product with float16 weights that are converted to float32. If `weights` is None, the weights are an
    input.
    """
    builder = ModelBuilder()
    x, real = builder.tensor("x", (1, 4), np.int8, X), builder.tensor("real", (1, 4), np.float32)
    half = builder.tensor("half", (4,), np.float16) if weights is None else builder.constant("half", weights)
    single, y = builder.tensor("single", (4,), np.float32), builder.tensor("y", (1, 4), np.float32)
    builder.operator("DEQUANTIZE", [x], [real])
    builder.operator("DEQUANTIZE", [half], [single], version=3)
    builder.operator("MUL", [real, single], [y], schema.MulOptionsT())
    return builder.build([x, half] if weights is None else [x], [y])


def test_float16_weights_equal_litert() -> None:
    """Some weights are subnormal numbers."""
    data = _half_weights(np.array([0.1, -6e-8, -1e-5, 65504], np.float16))
    inputs = [np.array([[-128, -2, 7, 127]], np.int8)]
    imported = import_model(data)
    ours = oracle.run(imported.module, get_mode(LITERT_REFERENCE), inputs)
    evidence.compare(imported, LITERT_REFERENCE, [ours], [litert.run(litert.interpreter(data), inputs)])


def test_float16_activations_equal_litert() -> None:
    data = _half_weights(None)
    inputs: list[Array] = [np.array([[-128, -2, 7, 127]], np.int8), np.array([0.1, -6e-8, -1e-5, 65504], np.float16)]
    imported = import_model(data)
    ours = oracle.run(imported.module, get_mode(LITERT_REFERENCE), inputs)
    evidence.compare(imported, LITERT_REFERENCE, [ours], [litert.run(litert.interpreter(data), inputs)])


def _transposed(weights: Array, bias: Array, same: bool, strides: tuple[int, int], shape: tuple[int, ...]) -> bytes:
    """Returns MediaPipe's Convolution2DTransposeBias with an input of `[1, 4, 6, 3]`."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4, 6, 3), np.float32), builder.tensor("y", shape, np.float32)
    builder.operator("CUSTOM", [x, builder.constant("weights", weights), builder.constant("bias", bias)], [y])
    builder.build([x], [y])
    builder.model.operatorCodes[0].customCode = "Convolution2DTransposeBias"
    options = np.array([1 if same else 2, strides[1], strides[0]], np.int32)  # TfLiteTransposeConvParams
    builder.graph.operators[0].customOptions = options.view(np.uint8)
    return serialize(builder.model)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("kernel", "strides"), [((2, 2), (2, 2)), ((3, 3), (2, 2)), ((3, 2), (1, 3)), ((5, 4), (3, 2))]
)
def test_a_transposed_convolution_of_mediapipe(same: bool, kernel: tuple[int, int], strides: tuple[int, int]) -> None:
    """The test follows the definition: each input element, multiplied by the filters, is added to a window of the
    output.
    """
    rng = np.random.default_rng(0)
    weights, bias = rng.normal(0, 1, (2, *kernel, 3)).astype(np.float32), np.array([0.5, -2], np.float32)
    x = rng.normal(0, 1, (1, 4, 6, 3)).astype(np.float32)
    lost = [max(0, k - (n - 1) % s - 1) if same else 0 for n, k, s in zip((4, 6), kernel, strides, strict=True)]
    whole = np.zeros((1, *((n - 1) * s + k for n, k, s in zip((4, 6), kernel, strides, strict=True)), 2))
    for row, column in np.ndindex(4, 6):
        window = np.einsum("c,okwc->kwo", x[0, row, column].astype(np.float64), weights)
        top, left = row * strides[0], column * strides[1]
        whole[0, top : top + kernel[0], left : left + kernel[1]] += window
    ends = [size - missing + missing // 2 for size, missing in zip(whole.shape[1:3], lost, strict=True)]
    expected = whole[:, lost[0] // 2 : ends[0], lost[1] // 2 : ends[1]] + bias
    imported = import_model(_transposed(weights, bias, same, strides, expected.shape))
    (actual,) = oracle.run(imported.module, get_mode(LITERT_REFERENCE), [x])
    np.testing.assert_allclose(actual, expected, RELATIVE, 2e-6)
    declared = import_model(_transposed(weights, bias, same, strides, (*expected.shape[:3], 3)))
    assert declared.signature.outputs[0].shape == expected.shape, "the shape follows from the kernel, not from the file"


def test_an_average_of_a_large_image_is_a_mean() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 40, 30, 2), np.float32), builder.tensor("y", (1, 1, 1, 2), np.float32)
    options = schema.Pool2DOptionsT(padding=1, strideH=40, strideW=30, filterHeight=40, filterWidth=30)
    builder.operator("AVERAGE_POOL_2D", [x], [y], options)
    data = builder.build([x], [y])
    inputs = [np.random.default_rng(0).normal(1, 1, (1, 40, 30, 2)).astype(np.float32)]
    (expected,) = litert.run(litert.interpreter(data), inputs)
    imported = import_model(data)
    (actual,) = oracle.run(imported.module, get_mode(LITERT_REFERENCE), inputs)
    evidence.record(imported, LITERT_REFERENCE, [[actual]], [[expected]])
    np.testing.assert_allclose(actual, expected, 1e-5)  # LiteRT adds 1,200 values in float32
