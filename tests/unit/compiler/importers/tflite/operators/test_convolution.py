"""Convolutions and depthwise convolutions of TFLite."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.tflite import import_model
from service.compiler.qnn.operation import value_of
from tests.support.operator_calls import call, ints, names, quantized
from tests.support.tflite_catalog import DEPTHWISE, MODELS


def test_a_convolution_becomes_an_accumulation_and_a_requantize() -> None:
    imported = import_model(MODELS["conv int8 valid strided relu6"]())
    assert names(imported) == ["qnn.conv2d", "qnn.requantize"]
    conv, requantize = call(imported, "qnn.conv2d"), call(imported, "qnn.requantize")
    assert (ints(conv, "strides"), ints(conv, "padding"), ints(conv, "dilation")) == ([2, 2], [0, 0, 0, 0], [1, 1])
    assert quantized(conv, "weight_type").axis == 0
    assert quantized(requantize, "in_type").axis == 3
    assert (quantized(requantize, "out_type").min, quantized(requantize, "out_type").max) == (7, 67)


def test_odd_padding_goes_to_the_bottom_and_right() -> None:
    imported = import_model(MODELS["conv int8 same strided, odd padding after"]())
    assert ints(call(imported, "qnn.conv2d"), "padding") == [0, 1, 1, 1]


def test_grouped_convolution() -> None:
    assert int(call(import_model(MODELS["conv int8 grouped"]()), "qnn.conv2d").attrs["groups"]) == 2


def test_depthwise_convolution_is_grouped_with_output_channels_first() -> None:
    conv = call(import_model(MODELS["depthwise int8 multiplier"]()), "qnn.conv2d")
    assert int(conv.attrs["groups"]) == 2
    np.testing.assert_array_equal(value_of(conv.args[1]), DEPTHWISE.transpose(3, 1, 2, 0))
    assert quantized(conv, "weight_type").axis == 0
