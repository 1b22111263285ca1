"""Transposed convolutions of TFLite."""

from __future__ import annotations

from service.compiler.importers.tflite import import_model
from tests.support.operator_calls import call, ints
from tests.support.tflite_catalog import MODELS


def test_a_transposed_convolution_is_cropped_to_its_output_size() -> None:
    conv = call(import_model(MODELS["transpose conv int8"]()), "qnn.conv2d_transpose")
    assert (ints(conv, "strides"), ints(conv, "padding"), ints(conv, "output_padding")) == (
        [2, 2],
        [0, 1, 1, 1],
        [0, 0],
    )
    beyond = MODELS["transpose conv int8 no bias, beyond the last window"]()
    conv = call(import_model(beyond), "qnn.conv2d_transpose")
    assert (ints(conv, "padding"), ints(conv, "output_padding")) == ([0, 0, 0, 0], [1, 2])
    assert len(conv.args) == 2
