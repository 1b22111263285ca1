"""DENSIFY, compared with LiteRT's kernel, for the weights of whole networks and every type of sparse encoding."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.models.arrays import Array
from tests.support import evidence, litert
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.examples import examples
from tests.support.tflite_builder import ModelBuilder, Quant
from tests.support.tflite_sparse import dense_constant, pack, pruned, sum_with
from tests.unit.compiler.importers.tflite.file.test_sparse import packings

CONV = schema.Conv2DOptionsT(strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)


def answers(data: bytes, x: Array) -> tuple[list[Array], list[Array]]:
    """Returns LiteRT's results and Octet's."""
    imported = import_model(data)
    theirs = litert.run(litert.interpreter(data), [x])
    ours = oracle.run(imported.module, get_mode(LITERT_REFERENCE), [x])
    evidence.record(imported, LITERT_REFERENCE, [ours], [theirs])
    return theirs, ours


@settings(max_examples=examples(60), deadline=None)
@given(packings())
def test_any_packing_is_what_litert_reads(case: tuple[Array, dict[str, object]]) -> None:
    data, packing = case
    elements, _ = pack(data, **packing)  # type: ignore[arg-type]
    if 32 * len(elements) < data.size or not len(elements):
        return
    (theirs,), (ours,) = answers(sum_with(data, **packing), np.zeros(data.shape, np.float32))
    np.testing.assert_array_equal(theirs, data)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("blocks", [{}, {3: 4}, {0: 4, 3: 2}])
def test_float16_weights_of_a_convolution(blocks: dict[int, int]) -> None:
    """MediaPipe's pose detector has such layers: DENSIFY, DEQUANTIZE, CONV_2D."""
    weights, builder = pruned((8, 1, 1, 16), 0.3), ModelBuilder()
    half = dense_constant(builder, "half", weights.astype(np.float16), blocks=blocks, compressed={0, 3})
    real, x = builder.tensor("real", weights.shape, np.float32), builder.tensor("x", (1, 5, 5, 16), np.float32)
    builder.operator("DEQUANTIZE", [half], [real], version=3)
    y, bias = builder.tensor("y", (1, 5, 5, 8), np.float32), builder.constant("bias", np.ones(8, np.float32))
    builder.operator("CONV_2D", [x, real, bias], [y], CONV)
    (theirs,), (ours,) = answers(
        builder.build([x], [y]), np.random.default_rng(0).normal(0, 1, (1, 5, 5, 16)).astype(np.float32)
    )
    np.testing.assert_allclose(ours, theirs, 2e-5, 2e-6)  # sums of 16 float32 products


def test_stored_weights_of_two_layers() -> None:
    """Both layers have the same shape. Elements that are not stored become 0, which is the zero point of weights."""
    builder, rng = ModelBuilder(), np.random.default_rng(0)
    tensors = [builder.tensor(f"t{i}", (1, 16), np.int8, Quant(0.07, -3)) for i in range(3)]
    for i in range(2):
        weights = (rng.integers(-127, 128, (16, 16)) * (rng.random((16, 16)) < 0.3)).astype(np.int8)
        made = dense_constant(builder, f"w{i}", weights, Quant(0.011), compressed={1}, blocks={1: 4})
        builder.operator(
            "FULLY_CONNECTED", [tensors[i], made, -1], [tensors[i + 1]], schema.FullyConnectedOptionsT(), version=4
        )
    assert_oracle_equals_litert(builder.build(tensors[:1], tensors[2:]), samples=4)
