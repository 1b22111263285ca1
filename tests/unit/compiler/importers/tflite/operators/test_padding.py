"""Padding of TFLite."""

from __future__ import annotations

from service.compiler.importers.tflite import import_model
from tests.support.operator_calls import call
from tests.support.tflite_catalog import MODELS


def test_padding_pads_with_the_zero_point() -> None:
    pad = call(import_model(MODELS["pad int8"]()), "nn.pad")
    assert float(pad.attrs.pad_value) == -3.0
    assert [int(width) for width in pad.attrs.pad_width] == [0, 0, 0, 1, 2, 0, 0, 0]
