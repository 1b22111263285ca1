"""Sums and means of real values between quantized parts. They equal ONNX Runtime's bit for bit, because the additions
have the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support import evidence
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

SCALE, SAMPLES = 0.0371, 3
# (shape, axes). The summed axes are rows in memory, columns, columns of several matrices, and axes for which ONNX
# Runtime has no fast function. If the length of a row is not a multiple of four, the next row starts at an unaligned
# address.
REDUCTIONS = [
    ((1, 24, 56, 56), (2, 3)),
    ((1, 7, 13, 13), (2, 3)),
    ((1, 64, 7, 7), (2, 3)),
    ((2, 9, 5, 3), (2, 3)),
    *(((1, 40, length), (2,)) for length in range(1, 18)),
    ((37, 41), (0, 1)),
    ((300,), (0,)),
    ((1, 197, 64), (1,)),
    ((1, 14, 14, 33), (1, 2)),
    ((7, 64), (0,)),
    *(((3, length, 40), (1,)) for length in range(1, 13)),
    ((1, 12, 50, 64), (2,)),
    ((2, 14, 14, 16), (1, 2)),
    ((3, 5, 7, 9), (0, 2)),
    ((2, 3, 4, 5, 6), (1, 3)),
]


def answers(data: bytes, samples: list[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns the bits of the oracle's result and of ONNX Runtime's."""
    imported, reference = import_model(data), Reference(data, optimized=True)
    ours = oracle.run_all(imported.module, get_mode(ONNXRUNTIME), [[sample] for sample in samples])
    theirs = [reference([sample]) for sample in samples]
    evidence.record(imported, ONNXRUNTIME, ours, theirs)
    return np.stack([each[0] for each in ours]), np.stack([each[0] for each in theirs])


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum"])
@pytest.mark.parametrize(("shape", "axes"), REDUCTIONS, ids=str)
def test_a_reduction(shape: tuple[int, ...], axes: tuple[int, ...], operator: str, keepdims: int) -> None:
    builder = OnnxBuilder()
    x = builder.input("x", "float32", shape)
    x = builder.dequantized(builder.quantized(x, SCALE, 0, "uint8"), SCALE, 0, "uint8")
    reduced = builder.node(operator, [x, builder.constant(axes, "int64")], keepdims=keepdims)
    builder.output(reduced, "float32")
    rng = np.random.default_rng(0)
    ours, theirs = answers(
        builder.build(18), [rng.uniform(0, 255 * SCALE, shape).astype(np.float32) for _ in range(SAMPLES)]
    )
    np.testing.assert_array_equal(ours, theirs)


CHANNELS, FINE = 24, 2e-10


def squeezed(kind: str, dtype: str, size: tuple[int, int]) -> bytes:
    """Returns a model of the mean of an image after a convolution, and a layer that reads it. The quantization steps
    are so fine that the rounding of the sums is visible.
    """
    rng = np.random.default_rng(1)
    builder = OnnxBuilder()
    zero_point = 0 if dtype == "int8" else 128
    kept = kind != "classifier"

    def stored(x: str, scale: float) -> str:
        return builder.dequantized(builder.quantized(x, scale, zero_point, dtype), scale, zero_point, dtype)

    def convolved(x: str, weights: np.ndarray[Any, Any], scale: float) -> str:
        return builder.node("Conv", [x, builder.dequantized(builder.constant(weights, "int8"), scale, 0, "int8")])

    x = stored(builder.input("x", "float32", [1, 3, *size]), 0.04)
    weights = rng.integers(-127, 128, (CHANNELS, 3, 1, 1))
    image = stored(convolved(x, weights, 0.01), 0.16)
    if kind == "residual":
        image = stored(builder.node("Add", [image, stored(convolved(x, weights[::-1], 0.01), 0.16)]), 0.3)
    mean = builder.node("ReduceMean", [image, builder.constant([2, 3], "int64")], keepdims=int(kept))
    result = stored(mean, FINE)
    same = np.eye(CHANNELS, dtype=np.int8)
    if kind == "classifier":
        matrix = builder.dequantized(builder.constant(same, "int8"), 1.0, 0, "int8")
        result = stored(builder.node("Gemm", [result, matrix]), FINE)
    elif kind != "output":
        result = stored(convolved(result, same.reshape(CHANNELS, CHANNELS, 1, 1), 1.0), FINE)
    builder.output(result, "float32")
    return builder.build(18)


@pytest.mark.parametrize("size", [(56, 56), (7, 7), (13, 17)], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kind", ["squeezed", "residual", "classifier", "output"])
def test_the_mean_of_an_image(kind: str, dtype: str, size: tuple[int, int]) -> None:
    """Between two convolutions, ONNX Runtime stores channels last, which changes the order of the additions."""
    rng = np.random.default_rng(0)
    images = [rng.uniform(-2.5, 2.5, (1, 3, *size)).astype(np.float32) for _ in range(8)]
    # Positive and negative terms nearly cancel, so rounding errors are a large part of the sums.
    images = [image - image[:, :, ::-1, ::-1] for image in images]
    ours, theirs = answers(squeezed(kind, dtype, size), images)
    np.testing.assert_array_equal(ours, theirs)
    assert len(np.unique(theirs)) > 4, "the steps are so coarse that they hide the order of the sums"
