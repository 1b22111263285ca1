"""Channels that only depthwise convolutions read are multiplied: the chosen channels, their factors, and equal
results.
"""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from service.quantize.file.document import Document
from service.quantize.weights.spreading import factors, spread, spreadable
from tests.support.onnx_builder import OnnxBuilder


def network(bound: tuple[float, float] | None = None, times: int = 1, other_reader: bool = False) -> bytes:
    """Returns a network from `x` to `y`: a convolution, ReLU or Clip, a depthwise convolution with `times` results for
    each channel, and one more convolution.
    """
    rng, model = np.random.default_rng(0), OnnxBuilder()

    def conv(x: str, channels: int, read: int, groups: int = 1) -> str:
        weights, bias = rng.normal(0, 1, (channels, read, 3, 3)), rng.normal(0, 1, channels)
        return model.node(
            "Conv", [x, model.constant(weights, "float32"), model.constant(bias, "float32")], group=groups
        )

    wide = conv(model.input("x", "float32", (1, 3, 12, 12)), 4, 3)
    ends = [model.constant(np.array(end), "float32") for end in bound or ()]
    wide = model.node("Clip" if bound else "Relu", [wide, *ends])
    deep = conv(conv(wide, 4 * times, 1, 4), 4 * times, 1, 4 * times)
    model.output(model.node("Concat", [deep, deep], axis=1) if not other_reader else deep, "float32")
    if other_reader:
        model.output(model.node("Sigmoid", [wide]), "float32")
    return model.build(13)


def answer(document: Document) -> Array:
    x = np.random.default_rng(1).normal(0, 1, (1, 3, 12, 12)).astype(np.float32)
    return oracle.run(import_model(document.serialize()).module, get_mode(ONNXRUNTIME), [x])[0]


def test_channels_reach_about_a_quarter_of_the_range() -> None:
    channels = np.array([[0, 6], [0, 1.4], [0, 0.1], [0, 0], [0, 1e-9]], np.float32)
    assert factors(channels).tolist() == [1, 1, 16, 1, 64]
    both = np.array([[-1, 8], [-0.01, 0.1], [-0.5, 0.001]], np.float32)
    assert factors(both).tolist() == [1, 16, 1], "the end that is closer to its limit decides"


@pytest.mark.parametrize("times", [1, 2])
def test_the_function_is_unchanged(times: int) -> None:
    """The results are equal bit for bit. The test includes a convolution between two depthwise ones."""
    document = Document(network(times=times))
    expected, names = answer(document), spreadable(document)
    assert len(names) == 2
    rows = (np.array([1, 4, 64, 2], np.float32), np.array([8, 1, 2, 16] * times, np.float32))
    spread(document, dict(zip(names, rows, strict=True)))
    np.testing.assert_array_equal(answer(document), expected)
    assert spreadable(document) == names


@pytest.mark.parametrize(
    ("file", "number"),
    [
        (network((0, 6)), 2),
        (network((-1, 1)), 2),
        (network((0.5, 6)), 1),  # zero, which padding inserts, is outside of these bounds
        (network(other_reader=True), 1),
    ],
)
def test_spread_layers(file: bytes, number: int) -> None:
    assert len(spreadable(Document(file))) == number
