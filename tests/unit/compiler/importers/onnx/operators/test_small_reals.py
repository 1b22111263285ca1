"""Conversions to and from real types of 8 and 4 bits equal ONNX Runtime's, or their definition if it has none."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder, message, number
from tests.support.onnx_reference import Reference

RNG = np.random.default_rng(0)
TYPES = {"float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20}
FLOAT4, HALF = 23, 10
X = (RNG.normal(size=(4, 8)) * 4).astype(np.float32)


def stored(b: OnnxBuilder, words: np.ndarray, kind: int, shape: tuple[int, ...]) -> str:
    """Adds a constant from the bytes of its elements."""
    name = b.name("w")
    dims = b"".join(number(1, size) for size in shape)
    b.constants.append(dims + number(2, kind) + message(8, name) + message(9, words.astype(np.uint8).tobytes()))
    return name


def quantized_twice(b: OnnxBuilder, kind: int, scale: str, shape: tuple[int, ...]) -> None:
    point = stored(b, np.zeros(shape), kind, shape)
    b.node("DequantizeLinear", [b.node("QuantizeLinear", ["x", scale, point]), scale, point], ["y"])


def per_tensor(b: OnnxBuilder, kind: int) -> None:
    quantized_twice(b, kind, b.constant(np.float32(0.01)), ())


def per_axis(b: OnnxBuilder, kind: int) -> None:
    quantized_twice(b, kind, b.constant(RNG.random(8).astype(np.float32) + np.float32(0.1)), (8,))


def weights(b: OnnxBuilder, kind: int) -> None:
    words = stored(b, RNG.integers(0, 0x70, 40), kind, (8, 5))
    scale, point = b.constant(RNG.random(5).astype(np.float32)), stored(b, np.zeros(5), kind, (5,))
    b.node("MatMul", ["x", b.node("DequantizeLinear", [words, scale, point], axis=1)], ["y"])


def cast(b: OnnxBuilder, kind: int) -> None:
    b.node("Cast", [b.node("Cast", ["x"], to=kind)], ["y"], to=1)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("write", [per_tensor, per_axis, weights, cast])
def test_values_of_8_bits(write, kind: str) -> None:  # type: ignore[no-untyped-def]
    b = OnnxBuilder()
    b.input("x", "float32", [4, 8])
    write(b, TYPES[kind])
    b.output("y", "float32")
    data = b.build(21)
    imported = import_model(data)
    (result,) = oracle.run(imported.module, get_mode(ONNXRUNTIME), [X])
    np.testing.assert_array_equal(result, Reference(data, optimized=True)([X])[0])
    assert any(f"the model has values of {kind}" in notice for notice in imported.notices)


def test_weights_of_4_bits_in_blocks() -> None:
    """As NVIDIA's NVFP4: the scales of the blocks are of 8 bits, and have a scale themselves."""
    b = OnnxBuilder()
    b.input("x", "float32", [4, 8])
    nibbles, scale_words = RNG.integers(0, 16, (8, 4)), RNG.integers(0x30, 0x40, (2, 4))
    packed = nibbles.reshape(-1)[::2] | nibbles.reshape(-1)[1::2] << 4
    words = stored(b, packed, FLOAT4, (8, 4))
    scales = stored(b, scale_words, TYPES["float8e4m3fn"], (2, 4))
    scale = b.node("DequantizeLinear", [scales, b.constant(np.float32(0.5))])
    real = b.node("DequantizeLinear", [words, scale], axis=0, block_size=4)
    b.node("MatMul", ["x", real], ["y"])
    b.output("y", "float32")
    (result,) = oracle.run(import_model(b.build(23)).module, get_mode(ONNXRUNTIME), [X])
    values = nibbles.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    factors = scale_words.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.float32(0.5)
    # The sums of products differ in their order.
    np.testing.assert_allclose(result, X @ (values * np.repeat(factors, 4, axis=0)), rtol=1e-5, atol=1e-4)
