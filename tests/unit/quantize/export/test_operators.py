"""Each operator of a float model gives the same result in the converted ONNX file as in the imported module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.importers.builder.pooling import Windows, average, largest
from service.compiler.importers.onnx.importer import import_model as import_onnx
from service.compiler.importers.real import Real
from service.compiler.importers.tflite import import_model
from service.compiler.qnn import ops
from service.core.errors import Unsupported
from service.quantize.export.model import convert_module
from tests.support.examples import examples
from tests.support.exported_operators import agrees, of
from tests.support.float_operators import CASES, MORE
from tests.support.float_operators import SHAPE as ONNX_SHAPE
from tests.support.float_operators import network as onnx_network
from tests.support.tflite_real import OPERATORS, SHAPE, network

ONNX_CASES = {**CASES, **MORE}


# Operators that importers expand into several operators, and for which ONNX has a single one.
WHOLE = {
    "AVERAGE_POOL_2D": ["Transpose", "AveragePool", "Relu", "Transpose"],
    "HARD_SWISH": ["HardSwish"],
    "L2_NORMALIZATION": ["ReduceL2", "Max", "Div"],
    "LEAKY_RELU": ["LeakyRelu"],
    "LOGISTIC": ["Sigmoid"],
    "MAX_POOL_2D": ["Transpose", "MaxPool", "Relu", "Transpose"],
    "MEAN": ["ReduceMean"],
    "PRELU": ["PRelu"],
    "RELU6": ["Clip"],
    "RESIZE_BILINEAR": ["Transpose", "Resize", "Transpose"],
    "SOFTMAX": ["Mul", "Softmax"],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_tflite(name: str) -> None:
    x = np.random.default_rng(0).normal(0, 2, SHAPE).astype(np.float32)
    found = agrees(import_model(network(name, stored=False)), [x])
    assert found == WHOLE.get(name, found)


@pytest.mark.parametrize("name", ONNX_CASES)
def test_an_operator_of_onnx(name: str) -> None:
    """Tests operators imported from ONNX, whose form differs from that of other importers."""
    x = np.random.default_rng(0).normal(0, 1, ONNX_SHAPE).astype(np.float32)
    agrees(import_onnx(onnx_network(ONNX_CASES[name], 0)), [x])


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_windows_of_any_geometry(data: st.DataObject) -> None:
    """Draws grouped and dilated convolutions and pools, with a different padding on each side."""
    kind = data.draw(st.sampled_from(["conv", "largest", "average", "average with padding"]))
    last = kind == "conv" or data.draw(st.booleans())  # true if channels are the last axis
    size, strides = (data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) for _ in range(2))
    dilation = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2))) if kind == "conv" else (1, 1)
    sides = data.draw(st.tuples(*(st.integers(0, size[index % 2] - 1) for index in range(4))))
    groups, rng = data.draw(st.integers(1, 3)), np.random.default_rng(0)

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        if kind == "conv":
            weights = rng.normal(0, 1, (2 * groups, *size, 2)).astype(np.float32)
            bias = relax.const(rng.normal(0, 1, 2 * groups).astype(np.float32))
            kernel = relax.const(weights)
            return ops.real_conv2d(x, kernel, bias, strides=strides, padding=sides, dilation=dilation, groups=groups)
        made, found = Real(lambda part, _: emit(part), x), Windows((1, 2) if last else (2, 3), size, strides, sides)
        if kind == "largest":
            return largest(made, found)
        return average(made, found, sides if kind == "average with padding" else (0, 0, 0, 0))

    shape = (1, 7, 6, 2 * groups) if last else (1, 2 * groups, 7, 6)
    found = agrees(of(make, shape), [rng.normal(0, 1, shape).astype(np.float32)])
    names = {"conv": "Conv", "largest": "MaxPool" if size != (1, 1) else "Slice"}
    if kind in names or size != (1, 1):
        assert names.get(kind, "AveragePool") in found
    assert not {"Add", "Max"} & {*found}


def test_an_input_that_is_an_output_is_copied() -> None:
    assert agrees(of(lambda emit, x: x, (2, 3)), [np.ones((2, 3), np.float32)]) == ["Identity"]


def test_an_unsupported_operator_is_named() -> None:
    imported = of(lambda emit, x: relax.op.cumsum(x, 0), (2, 3))
    with pytest.raises(Unsupported, match="cumsum cannot be written as ONNX") as caught:
        convert_module(imported)
    assert caught.value.op == "cumsum"
    assert caught.value.tensor
    assert caught.value.hint


def test_a_quantized_model_is_refused() -> None:
    with pytest.raises(Unsupported, match="quantized already"):
        convert_module(import_model(network("ADD", stored=True)))
