from __future__ import annotations

import pytest

from service.core.builds.quantization import LiveRange, QuantizationOptions
from service.core.errors import InvalidInput
from service.quantize.calibration.methods import affine
from service.quantize.steps.live import widened

TYPES = {"image": affine(-1, 1, "uint8"), "/conv/out": affine(0, 4, "uint8")}
SERVED = "QuantizeLinear_0_image_quantized"


def live(tensor: str, low: float = -3.0, high: float = 3.0) -> LiveRange:
    return LiveRange(tensor, low, high)


def test_a_range_is_widened_to_contain_live_values() -> None:
    assert widened(TYPES, [live(SERVED)], TYPES) == TYPES | {"image": affine(-3, 3, "uint8")}


def test_a_widened_range_contains_the_former_one() -> None:
    image = widened(TYPES, [live(SERVED, -3, 0.5)], TYPES)["image"]
    scale, point = image.scales[0], image.zero_points[0]
    assert pytest.approx(-point * scale, abs=scale) == -3
    assert (255 - point) * scale == pytest.approx(1, abs=scale)


def test_a_range_that_contains_the_live_values_stays() -> None:
    assert widened(TYPES, [live(SERVED, -0.5, 0.5)], TYPES) == TYPES


@pytest.mark.parametrize("tensor", ["QLinearConv_4_/conv/out_quantized1", "QLinearConv_4__conv_out_quantized"])
def test_names_are_compared_without_punctuation(tensor: str) -> None:
    assert widened(TYPES, [live(tensor, 0, 8)], TYPES)["/conv/out"] == affine(0, 8, "uint8")


def test_tensors_of_float_layers_are_ignored() -> None:
    assert widened(TYPES, [live("QLinearConv_4_kept_quantized")], [*TYPES, "kept"]) == TYPES


@pytest.mark.parametrize("tensor", ["image", "QLinearConv_4_other_quantized", "conv2d_1"])
def test_a_tensor_of_another_model_is_refused(tensor: str) -> None:
    with pytest.raises(InvalidInput, match="no quantized tensor that is served as"):
        widened(TYPES, [live(tensor)], TYPES)


def test_live_ranges_are_part_of_the_options() -> None:
    options = QuantizationOptions(live=(live("a"),))
    assert QuantizationOptions.from_json(options.to_json()) == options
    assert "live" not in QuantizationOptions().to_json()


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_an_empty_live_range_is_refused(low: float, high: float) -> None:
    with pytest.raises(InvalidInput, match="the live range of 'a'"):
        LiveRange.from_json({"tensor": "a", "low": low, "high": high})
