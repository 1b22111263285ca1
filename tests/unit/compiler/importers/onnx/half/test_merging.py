"""float16 weights are rounded where ONNX Runtime's optimizer rounds them."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.half.merging import merge_into_convolutions
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

RNG = np.random.default_rng(5)
CHANNELS = 16


def half(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float16)


def convolution(*, has_bias: bool) -> tuple[OnnxBuilder, str]:
    b = OnnxBuilder()
    inputs = [b.input("x", "float16", [1, 3, 6, 6]), b.constant(half(CHANNELS, 3, 3, 3))]
    return b, b.node("Conv", [*inputs, b.constant(half(CHANNELS))] if has_bias else inputs)


def normalized(b: OnnxBuilder, x: str) -> str:
    variance = np.abs(half(CHANNELS)) + np.float16(0.1)
    vectors = [half(CHANNELS), half(CHANNELS), half(CHANNELS), variance]
    return b.node("BatchNormalization", [x, *map(b.constant, vectors)])


def scaled(b: OnnxBuilder, x: str) -> str:
    return b.node("Mul", [x, b.constant(half(1, CHANNELS, 1, 1))])


def biased(b: OnnxBuilder, x: str) -> str:
    return b.node("Add", [x, b.constant(half(CHANNELS, 1, 1))])


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("steps", [(normalized,), (scaled,), (biased,), (scaled, biased), (biased, normalized)])
def test_operators_after_a_convolution_are_merged(steps: tuple, has_bias: bool) -> None:  # type: ignore[type-arg]
    b, y = convolution(has_bias=has_bias)
    for step in steps:
        y = step(b, y)
    b.node("Relu", [y], ["y"])
    b.output("y", "float16")
    data, x = b.build(), half(1, 3, 6, 6)
    assert [each.op_type for each in merge_into_convolutions(read_model(data)).operators] == ["Conv", "Relu"]
    (expected,) = Reference(data, optimized=True)([x])
    (result,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [x])
    # The sums of products differ in their order, so that a few of them round to the neighbouring float16.
    np.testing.assert_array_max_ulp(result, expected, 1)
    assert (result != expected).mean() < 0.01


def test_a_convolution_that_others_read_keeps_its_weights() -> None:
    b, y = convolution(has_bias=False)
    b.node("Add", [scaled(b, y), y], ["y"])
    b.output("y", "float16")
    assert len(merge_into_convolutions(read_model(b.build())).operators) == 3
