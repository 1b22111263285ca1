"""A dilated convolution in three operators becomes one operator with the same result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.tflite_builder import ModelBuilder, Quant

X, Y, WEIGHTS = Quant(0.05, -3), Quant(0.8, 7), Quant(0.02)


def dilated(
    block: Sequence[int],
    paddings: Sequence[Sequence[int]],
    crops: Sequence[Sequence[int]],
    *,
    depthwise: bool = False,
    used_twice: bool = False,
) -> bytes:
    """Returns a model that convolves a 7 x 6 image with a 3 x 3 kernel."""
    rng = np.random.default_rng(1)
    blocks, pads, cuts = np.array(block, np.int32), np.array(paddings, np.int32), np.array(crops, np.int32)
    inner = (np.array([7, 6]) + pads.sum(1)) // blocks
    count = int(blocks.prod())
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 7, 6, 4), np.int8, X)
    spread = builder.tensor("spread", (count, *inner.tolist(), 4), np.int8, X)
    made = builder.tensor("made", (count, *(inner - 2).tolist(), 4), np.int8, Y)
    whole = ((inner - 2) * blocks - cuts.sum(1)).tolist()
    y = builder.tensor("y", (1, *whole, 4), np.int8, Y)
    constants = [builder.constant(f"c{index}", value) for index, value in enumerate((blocks, pads, cuts))]
    shape = (1, 3, 3, 4) if depthwise else (4, 3, 3, 4)
    weights = builder.constant("weights", rng.integers(-127, 128, shape).astype(np.int8), WEIGHTS)
    bias = builder.constant("bias", np.arange(4, dtype=np.int32) * 100, Quant(0.001))
    steps = {"padding": schema.Padding.VALID, "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    options = (
        schema.DepthwiseConv2DOptionsT(depthMultiplier=1, **steps) if depthwise else schema.Conv2DOptionsT(**steps)
    )
    builder.operator("SPACE_TO_BATCH_ND", [x, constants[0], constants[1]], [spread])
    builder.operator(name, [spread, weights, bias], [made], options)
    builder.operator("BATCH_TO_SPACE_ND", [made, constants[0], constants[2]], [y])
    return builder.build([x], [y, spread] if used_twice else [y])


def operators(data: bytes) -> list[str]:
    bindings = import_model(data).module["main"].body.blocks[0].bindings
    return [binding.value.op.name.removeprefix("relax.") for binding in bindings if hasattr(binding.value, "op")]


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize(
    ("block", "paddings", "crops"),
    [
        ((2, 2), ((2, 3), (2, 2)), ((0, 1), (0, 0))),  # The converter's form of SAME.
        ((1, 2), ((0, 0), (0, 0)), ((0, 0), (0, 0))),  # The converter's form of VALID.
        ((3, 2), ((1, 4), (0, 4)), ((0, 2), (0, 3))),
    ],
)
def test_three_operators_become_one_convolution(
    block: Sequence[int], paddings: Sequence[Sequence[int]], crops: Sequence[Sequence[int]], depthwise: bool
) -> None:
    data = dilated(block, paddings, crops, depthwise=depthwise)
    assert operators(data) == ["qnn.conv2d", "qnn.requantize"]
    assert_oracle_equals_litert(data, samples=3)


@pytest.mark.parametrize(
    ("crops", "used_twice"),
    [(((1, 1), (0, 0)), False), (((0, 1), (0, 3)), False), (((0, 1), (0, 0)), True)],
    ids=["crops at the top", "crops more than was padded", "the parts are an output"],
)
def test_operators_that_are_more_than_a_dilation_are_kept(crops: Sequence[Sequence[int]], used_twice: bool) -> None:
    data = dilated((2, 2), ((2, 3), (2, 2)), crops, used_twice=used_twice)
    assert "permute_dims" in operators(data)
    assert_oracle_equals_litert(data, samples=1)
