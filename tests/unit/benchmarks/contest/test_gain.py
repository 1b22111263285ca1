"""Checks that the float32 form of a quantized TFLite file gives nearly the same results as the quantized file."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from benchmarks.contest.gain import twins
from benchmarks.quantization.sources import with_real_weights
from tests.support.shared_data import require_shared_data

NAMES = ["mobilenet_v1_0.25_128_quant", "tf2_mobilenet_v2_1.0_224_ptq", "pretrainedResnet_quant", "kws_ref_model"]


@pytest.mark.parametrize("name", NAMES)
def test_a_float_form_gives_similar_probabilities(name: str) -> None:
    """Compares the class probabilities for smooth inputs of low contrast, which no quantized layer clips.

    They may differ by the quantization error of 8 bits. A wrong stride, padding or axis gives entirely different
    probabilities.
    """
    file = (require_shared_data() / "models" / "tflite" / f"{name}.tflite").read_bytes()
    quantized, real = (Interpreter(model_content=each) for each in (file, with_real_weights(file)))
    for interpreter in (quantized, real):
        interpreter.allocate_tensors()
    (source,), (result,) = quantized.get_input_details(), quantized.get_output_details()
    _, height, width, channels = source["shape"]
    rng = np.random.default_rng(0)
    for _ in range(4):
        coarse = rng.uniform(0, 1, (4, 4, channels)).repeat(-(-height // 4), 0).repeat(-(-width // 4), 1)
        limits = np.iinfo(source["dtype"])
        scale, zero_point = source["quantization"]
        steps = zero_point + (coarse[:height, :width] - 0.5) * 48
        stored = np.clip(steps, limits.min, limits.max).astype(source["dtype"])[np.newaxis]
        quantized.set_tensor(source["index"], stored)
        real.set_tensor(real.get_input_details()[0]["index"], ((stored - np.float32(zero_point)) * scale).astype("f4"))
        quantized.invoke()
        real.invoke()
        scale, zero_point = result["quantization"]
        shares = (quantized.get_tensor(result["index"])[0].astype(float) - zero_point) * scale
        logits = real.get_tensor(real.get_output_details()[0]["index"])[0].astype(float)
        own = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        np.testing.assert_allclose(own, shares, atol=0.3)


def test_twins_have_both_forms_of_one_format() -> None:
    pairs = {row.name: {*row.files} for row in twins()}
    assert pairs["kws_ref_model"] == {"tflite", "tflite_fp32"}
    assert pairs["resnet18"] == {"onnx", "onnx_fp32"}
    assert all(len(files) == 2 for files in pairs.values())
