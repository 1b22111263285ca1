"""DFT, STFT, windows and mel filters, compared with ONNX Runtime and with exact transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import OctetError
from service.core.models.arrays import Array
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_operator import Constant, Operand, assert_as_onnx_runtime, constant, model_of
from tests.support.onnx_reference import Reference

# Of lengths that are not powers of two, ONNX Runtime's own error is up to 4e-4 of the largest value.
TOLERANCE, TOLERANCE_OF_POWERS, EXACT = 5e-4, 2e-6, 1e-6
LENGTHS = (1, 2, 7, 31, 32, 33, 36, 97, 128, 400)


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("parts", "inverse", "onesided"), [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1)])
def test_a_transform_is_that_of_onnx_runtime(length: int, parts: int, inverse: int, onesided: int) -> None:
    size = length // 2 + 1 if inverse and onesided else length
    tolerance = TOLERANCE_OF_POWERS if length & (length - 1) == 0 else TOLERANCE
    operands: list[Operand] = [_random(2, size, parts), constant(length)]
    assert_as_onnx_runtime("DFT", operands, tolerance=tolerance, inverse=inverse, onesided=onesided)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_transform_is_exact(length: int) -> None:
    signal = _random(2, length, 2)
    data, _ = model_of("DFT", [signal], ["float32"], 20, {})
    (actual,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [signal])
    expected = np.fft.fft(signal[..., 0] + 1j * signal[..., 1].astype(np.float64))
    difference = np.abs(actual[..., 0] + 1j * actual[..., 1] - expected).max()
    assert difference <= EXACT * np.abs(expected).max()


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
def test_the_axis_is_an_input_or_an_attribute(axis: int) -> None:
    assert_as_onnx_runtime("DFT", [_random(3, 4, 8, 1), None, constant(axis)], tolerance=TOLERANCE)
    assert_as_onnx_runtime("DFT", [_random(3, 4, 8, 1)], opset=17, tolerance=TOLERANCE, axis=axis)


@pytest.mark.parametrize("length", [3, 9, 12])
def test_a_signal_is_cut_off_or_filled(length: int) -> None:
    assert_as_onnx_runtime("DFT", [_random(3, 9, 1), constant(length)], tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("samples", "length", "step"),
    [(128, 16, 8), (1000, 400, 160), (700, 512, 128), (300, 25, 10), (300, 37, 11), (300, 128, 1), (64, 64, 64)],
)
def test_a_short_time_transform_is_that_of_onnx_runtime(samples: int, length: int, step: int) -> None:
    window = np.hanning(length).astype(np.float32)
    for onesided in (0, 1):
        operands: list[Operand] = [_random(2, samples, 1), constant(step), Constant(window), constant(length)]
        assert_as_onnx_runtime("STFT", operands, opset=17, tolerance=TOLERANCE, onesided=onesided)
    assert_as_onnx_runtime("STFT", [_random(2, samples), constant(step), window], opset=17, tolerance=TOLERANCE)
    complex_: list[Operand] = [_random(1, samples, 2), constant(step), None, constant(length)]
    assert_as_onnx_runtime("STFT", complex_, opset=17, tolerance=TOLERANCE, onesided=0)


def test_a_compiled_transform_equals_the_oracle() -> None:
    window = Constant(np.hanning(48).astype(np.float32))
    operands: list[Operand] = [_random(1, 200, 1), constant(16), window]
    assert_as_onnx_runtime("STFT", operands, opset=17, tolerance=TOLERANCE, compiled=True)


def _filtered(op_type: str, operands: list[Constant], rows: int, **attributes: Any) -> tuple[bytes, Array]:
    """Returns a model that multiplies ones by a constant tensor that the operator computes, and the ones."""
    model = OnnxBuilder()
    ones = np.ones((rows, 1) if op_type == "MelWeightMatrix" else rows, np.float32)
    values = model.node(op_type, [model.constant(each.data) for each in operands], **attributes)
    model.output(model.node("Mul", [model.input("x", "float32", list(ones.shape)), values]), "float32")
    return model.build(17), ones


@pytest.mark.parametrize("op_type", ["BlackmanWindow", "HammingWindow", "HannWindow"])
@pytest.mark.parametrize("length", [2, 5, 16, 400, 512])
@pytest.mark.parametrize("periodic", [0, 1])
def test_a_window_is_that_of_onnx_runtime(op_type: str, length: int, periodic: int) -> None:
    data, ones = _filtered(op_type, [constant(length)], length, periodic=periodic)
    (actual,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [ones])
    # The C library's cosine and NumPy's may differ in the last place of float64.
    np.testing.assert_allclose(actual, Reference(data, optimized=False)([ones])[0], rtol=0, atol=6e-8)


@pytest.mark.parametrize(
    ("bins", "length", "rate", "low", "high"),
    [(8, 16, 8192, 0, 4096), (80, 400, 16000, 0, 8000), (40, 512, 16000, 20, 7600), (128, 256, 8000, 125, 3800)],
)
def test_mel_filters_are_those_of_onnx_runtime(bins: int, length: int, rate: int, low: float, high: float) -> None:
    edges = [constant(low, "float32"), constant(high, "float32")]
    data, ones = _filtered("MelWeightMatrix", [*map(constant, (bins, length, rate)), *edges], length // 2 + 1)
    (actual,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [ones])
    np.testing.assert_array_equal(actual, Reference(data, optimized=False)([ones])[0])


@pytest.mark.parametrize(
    ("op_type", "operands", "fault"),
    [
        ("DFT", [np.zeros((1, 8, 3), np.float32)], "not real or complex numbers"),
        ("DFT", [np.zeros((1, 8, 1), np.float32), constant(1 << 40)], "which is too large"),
        ("STFT", [np.zeros((1, 8, 1), np.float32), constant(1), None, constant(9)], "has frames of 9"),
        ("STFT", [np.zeros((1, 8, 1), np.float32), constant(0), None, constant(4)], "has frames of 4"),
    ],
)
def test_what_cannot_be_transformed_is_refused(op_type: str, operands: list[Array], fault: str) -> None:
    data, _ = model_of(op_type, operands, ["float32"], 20, {})
    with pytest.raises(OctetError) as caught:
        import_model(data)
    assert fault in caught.value.message
