"""Layers that the tools of NNCF and OpenVINO leave real or quantize per channel, compared with ONNX Runtime. ONNX
Runtime computes convolutions in float32, so the results agree within the rounding of the sums. Products of computed
matrices are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import coverage, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import TARGETS, detect_host
from service.core.verification.vectors import sample_inputs
from tests.support import evidence
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.selected import run_selected

HERE = [target for target in TARGETS if target.runs_on(detect_host())]
MODE = get_mode(ONNXRUNTIME)
RNG = np.random.default_rng(5)
CHANNELS = 8
# The fraction of values whose float32 sums are so close to the middle between two steps that rounding errors decide.
FLIPPED = 1e-3


def weights(model: OnnxBuilder, *shape: int) -> str:
    """Adds symmetric int8 weights with one scale for each filter."""
    stored = model.constant(RNG.integers(-127, 128, shape), "int8")
    scales = model.constant(RNG.uniform(1e-3, 1e-2, shape[0]), "float32")
    return model.node("DequantizeLinear", [stored, scales, model.constant(np.zeros(shape[0]), "int8")], axis=0)


def biases(model: OnnxBuilder, filters: int) -> str:
    return model.constant(RNG.normal(0, 0.5, filters), "float32")


def by_channel(model: OnnxBuilder, x: str, point: int = 0) -> str:
    """Quantizes `x` with one scale for each channel, and dequantizes it."""
    scales = model.constant(RNG.uniform(0.01, 0.03, CHANNELS), "float32")
    points = model.constant(np.full(CHANNELS, point), "uint8")
    stored = model.node("QuantizeLinear", [x, scales, points], axis=1)
    return model.node("DequantizeLinear", [stored, scales, points], axis=1)


def conv(model: OnnxBuilder, x: str, *, biased: bool = True, **attributes: Any) -> str:
    inputs = [x, weights(model, CHANNELS, CHANNELS, 3, 3), *([biases(model, CHANNELS)] if biased else [])]
    return model.node("Conv", inputs, **attributes)


def depthwise(model: OnnxBuilder, x: str, filters: int = CHANNELS, **attributes: Any) -> str:
    inputs = [x, weights(model, filters, 1, 3, 3), biases(model, filters)]
    return model.node("Conv", inputs, group=CHANNELS, **attributes)


def _expanded(model: OnnxBuilder, x: str) -> str:
    """Adds a convolution, a Relu6 and a depthwise convolution."""
    wide = model.node("Clip", [conv(model, x), *(model.constant(bound, "float32") for bound in (0.0, 6.0))])
    return depthwise(model, by_channel(model, wide), pads=[1, 1, 1, 1])


def _padded(model: OnnxBuilder, x: str) -> str:
    widths = model.constant([0, 0, 0, 0, 0, 0, 1, 1], "int64")
    shown = model.node("Pad", [by_channel(model, x, 100), widths, model.constant(0.0, "float32")])
    return depthwise(model, shown, 2 * CHANNELS, strides=[2, 2])


def _concatenated(model: OnnxBuilder, x: str) -> str:
    """Adds two parts with the same quantization, which are concatenated and transposed."""
    parts = [
        model.dequantized(model.quantized(model.node(name, [x]), 0.05, 0, "uint8"), 0.05, 0, "uint8")
        for name in ("Relu", "Abs")
    ]
    whole = model.node("Transpose", [model.node("Concat", parts, axis=1)], perm=[0, 1, 3, 2])
    filters = weights(model, CHANNELS, 2 * CHANNELS, 1, 1)
    return model.node("Conv", [whole, filters, biases(model, CHANNELS)])


def _by_channel_again(model: OnnxBuilder, x: str) -> str:
    """Adds a depthwise convolution, a quantization per channel that clips some values, and another depthwise
    convolution.
    """
    inner = depthwise(model, by_channel(model, x, 120), pads=[1, 1, 1, 1])
    bounds = [model.constant(bound, "float32") for bound in (-0.5, 1.0)]
    return depthwise(model, by_channel(model, model.node("Clip", [inner, *bounds]), 100))


BODIES: dict[str, Callable[[OnnxBuilder, str], str]] = {
    "behind a convolution": _expanded,
    "padded": _padded,
    "behind a depthwise one": _by_channel_again,
    "joined": _concatenated,
    "without a bias": lambda model, x: conv(model, x, biased=False),
}


def network(body: Callable[[OnnxBuilder, str], str], *, stored: bool) -> bytes:
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", "uint8", (1, CHANNELS, 9, 9)), 0.02, 120, "uint8")
    y = body(model, x)
    model.output(model.quantized(y, 0.05, 100, "uint8") if stored else y, "uint8" if stored else "float32")
    return model.build()


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("name", BODIES)
def test_convolution_is_of_integers(name: str, stored: bool, tmp_path: Path) -> None:
    data = network(BODIES[name], stored=stored)
    imported, reference = import_model(data), Reference(data, optimized=True)
    assert coverage.report(imported.module)["integer_percent"] == 100
    samples = sample_inputs(imported.signature, 8, seed=2)
    for sample in samples:
        (expected,), (actual,) = reference(sample), oracle.run(imported.module, MODE, sample)
        evidence.record(imported, ONNXRUNTIME, [[actual]], [[expected]])
        if stored:
            gap = np.abs(actual.astype(int) - expected)
            assert gap.max() <= 1
            assert (gap > 0).mean() <= FLIPPED
        else:
            far = ~np.isclose(actual, expected, rtol=1e-5, atol=1e-5)
            assert far.mean() <= 9 * FLIPPED  # all windows around a changed value read this value
    if HERE:
        _, (compiled,) = run_selected(imported.module, HERE[0], ONNXRUNTIME, samples[-1], tmp_path)
        np.testing.assert_array_equal(compiled, actual)


@pytest.mark.parametrize(("storage", "other"), [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
def test_product_of_computed_matrices_is_equal(storage: str, other: str) -> None:
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", storage, (1, 3, 33, 64)), 0.0173, 7, storage)
    y = model.dequantized(model.input("y", other, (1, 3, 64, 21)), 0.0391, 3, other)
    model.output(model.node("MatMul", [x, y]), "float32")
    data = model.build()
    imported, reference = import_model(data), Reference(data, optimized=True)
    assert coverage.report(imported.module)["integer_percent"] == 100
    for sample in sample_inputs(imported.signature, 4, seed=2):
        (expected,), (actual,) = reference(sample), oracle.run(imported.module, MODE, sample)
        evidence.compare(imported, ONNXRUNTIME, [[actual]], [[expected]])
