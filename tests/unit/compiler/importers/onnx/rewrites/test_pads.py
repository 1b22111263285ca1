"""A Pad of zeros becomes a part of the convolution or the pool that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.rewrites.pads import merge_pads
from service.compiler.importers.qdq import Operator
from tests.support.onnx_builder import OnnxBuilder

SIZES = (0, 0, 1, 0, 0, 0, 2, 3)


def merged(
    sizes: Sequence[int] = SIZES,
    value: float | None = None,
    mode: str = "constant",
    read_twice: bool = False,
    opset: int = 17,
    **attributes: Any,
) -> tuple[Operator, ...]:
    """Returns the operators that remain of a Pad and a Conv."""
    model = OnnxBuilder()
    x = model.input("x", "float32", (1, 2, 6, 6))
    if opset < 11:
        padded = model.node("Pad", [x], mode=mode, pads=list(sizes))
    else:
        values = [] if value is None else [model.constant(value, "float32")]
        padded = model.node("Pad", [x, model.constant(sizes, "int64"), *values], mode=mode)
    if read_twice:
        model.output(padded, "float32")
    weights = model.constant(np.ones((3, 2, 3, 3)), "float32")
    model.output(model.node("Conv", [padded, weights], None, "", **attributes), "float32")
    merged_model, notices = merge_pads(read_model(model.build(opset)))
    assert notices == ()
    return merged_model.operators


@pytest.mark.parametrize("options", [{}, {"value": 0.0}, {"opset": 10}, {"auto_pad": "NOTSET"}], ids=str)
def test_zeros_are_merged(options: dict[str, Any]) -> None:
    (operator,) = merged(**options)
    assert operator.attributes["pads"] == (1, 0, 2, 3)
    assert operator.inputs[0] == "x"


def test_sizes_are_added() -> None:
    (operator,) = merged(pads=[1, 2, 3, 4])
    assert operator.attributes["pads"] == (2, 2, 5, 7)


OTHERS: dict[str, dict[str, Any]] = {
    "another value": {"value": 1.0},
    "copies of the border": {"mode": "edge"},
    "channels": {"sizes": (0, 1, 1, 0, 0, 0, 2, 3)},
    "negative sizes": {"sizes": (0, 0, -1, 0, 0, 0, 2, 3)},
    "two readers": {"read_twice": True},
    "a convolution that chooses its own padding": {"auto_pad": "SAME_UPPER"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_pads_are_kept(name: str) -> None:
    assert [operator.op_type for operator in merged(**OTHERS[name])] == ["Pad", "Conv"]


def pooled(kernel: Sequence[int], *outputs: str) -> tuple[list[str], tuple[str, ...]]:
    """Returns the operators that remain of a Pad and a MaxPool, and the notices."""
    model = OnnxBuilder()
    padded = model.node("Pad", [model.input("x", "float32", (1, 2, 6, 6)), model.constant(SIZES, "int64")])
    model.output(model.node("MaxPool", [padded], ["y", *outputs], kernel_shape=kernel), "float32")
    merged_model, notices = merge_pads(read_model(model.build()))
    return [operator.op_type for operator in merged_model.operators], notices


def test_a_pool_that_changes_gets_a_notice() -> None:
    operators, (notice,) = pooled([3, 4])
    assert operators == ["MaxPool"]
    assert notice.startswith("ONNX Runtime's optimizer merges the zeros of Pad #0 into MaxPool #1")


@pytest.mark.parametrize(("kernel", "outputs"), [([3, 3], ()), ([3, 4], ("places",))], ids=["narrow", "places"])
def test_a_pool_that_onnx_runtime_keeps(kernel: Sequence[int], outputs: Sequence[str]) -> None:
    assert pooled(kernel, *outputs) == (["Pad", "MaxPool"], ())
