"""Every supported operator set. Some attributes became inputs in later sets, and some defaults changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.file.reader import OPSETS
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support import evidence
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

TOLERANCE = 2e-7  # the rounding error of a float32 softmax over a few values


class Writer(OnnxBuilder):
    """Writes operators in the form that a given operator set defines."""

    def __init__(self, opset: int) -> None:
        super().__init__()
        self.opset = opset

    def since(self, opset: int, op_type: str, x: str, name: str, values: list[int]) -> str:
        """Adds an operator with a list of integers. The list is an input from operator set `opset` on, and an attribute
        before.
        """
        if self.opset < opset:
            attributes: dict[str, Any] = {name: values}
            return self.node(op_type, [x], **attributes)
        return self.node(op_type, [x, self.constant(values, "int64")])

    def clip(self, x: str, low: float, high: float) -> str:
        if self.opset < 11:
            return self.node("Clip", [x], min=low, max=high)
        return self.node("Clip", [x, *(self.constant(bound, "float32") for bound in (low, high))])

    def resize(self, x: str) -> str:
        scales = self.constant([1, 1, 2, 2], "float32")
        region = self.constant([], "float32") if self.opset < 13 else ""  # before set 13, this operand is not optional
        operands = [x, scales] if self.opset < 11 else [x, region, scales]
        corners: dict[str, Any] = (
            {} if self.opset < 11 else {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        )
        return self.node("Resize", operands, mode="nearest", **corners)

    def split(self, x: str) -> list[str]:
        names, sizes = [self.name("part"), self.name("part")], [1, 2]
        if self.opset < 13:
            self.node("Split", [x], names, axis=1, split=sizes)
        else:
            self.node("Split", [x, self.constant(sizes, "int64")], names, axis=1)
        return names

    def both(self, x: str) -> str:
        """Adds a QuantizeLinear and a DequantizeLinear."""
        return self.dequantized(self.quantized(x, 1 / 16, 100, "uint8"), 1 / 16, 100, "uint8")


def model_of(opset: int) -> bytes:
    model = Writer(opset)
    weights = model.dequantized(model.constant(np.arange(-13, 14).reshape(3, 1, 3, 3), "int8"), 1 / 64, 0, "int8")
    x = model.both(model.input("x", "float32", ["N", 1, 6, 5]))
    x = model.both(model.clip(model.node("Conv", [x, weights]), -2.0, 6.0))
    x = model.both(model.resize(model.since(11, "Pad", x, "pads", [0, 0, 1, 0, 0, 0, 1, 2])))
    first, second = model.split(x)
    model.output(model.both(model.since(18, "ReduceMax", first, "axes", [2, 3])), "float32")
    x = model.since(13, "Squeeze", model.since(13, "Unsqueeze", second, "axes", [0]), "axes", [0])
    model.output(model.node("Softmax", [x]), "float32")
    return model.build(opset)


@pytest.mark.parametrize("opset", range(10, OPSETS.stop))  # older operator sets have no quantized operators
def test_an_operator_set(opset: int) -> None:
    data = model_of(opset)
    imported, reference = import_model(data), Reference(data, optimized=False)
    samples = [[np.random.default_rng(seed).uniform(-9, 9, (1, 1, 6, 5)).astype(np.float32)] for seed in range(3)]
    actual = oracle.run_all(imported.module, get_mode(ONNXRUNTIME), samples)
    expected = [reference(sample) for sample in samples]
    evidence.compare(imported, ONNXRUNTIME, actual, expected, steps=TOLERANCE)
