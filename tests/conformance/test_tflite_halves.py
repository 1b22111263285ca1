"""Sums that are halfway between two results, with multipliers that produce many of them. LiteRT's reference kernels of
dense layers round them away from zero.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.importers.tflite.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.models.arrays import Array
from service.core.target import detect_host
from tests.support import litert
from tests.support.conformance import assert_equals_litert
from tests.support.examples import examples
from tests.support.selected import run_selected
from tests.support.tflite_builder import Quant
from tests.support.tflite_models import fully_connected_model

POINTS = {"int8": 0, "uint8": 128}
DEPTH, UNITS, ROWS = 8, 20, 64


def dense(dtype: str, seed: int, factor: float, *, per_channel: bool = False) -> tuple[bytes, Array]:
    """Returns a layer whose sums are multiplied by `factor`, and an input for it."""
    rng, limits, point = np.random.default_rng(seed), np.iinfo(dtype), POINTS[dtype]
    weights = rng.integers(max(limits.min, -127), limits.max, (UNITS, DEPTH), endpoint=True).astype(dtype)
    scales = tuple(2.0 ** -(unit % 3) for unit in range(UNITS)) if per_channel else 1.0
    quant = Quant(scales, point if not per_channel else (0,) * UNITS)
    ends = Quant(1.0, point), quant, Quant(1 / factor, point)
    model = fully_connected_model((ROWS, DEPTH), weights, None, *ends)
    return model, rng.integers(limits.min, limits.max, (ROWS, DEPTH), endpoint=True).astype(dtype)


def expected(model: bytes, x: Array) -> Array:
    answer: Array = litert.run(litert.interpreter(model), [x])[0]
    return answer


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(POINTS)), st.integers(0, 1 << 16), st.integers(1, 63), st.integers(6, 14), st.booleans())
def test_a_dense_layer_rounds_as_the_reference(
    dtype: str, seed: int, factor: int, right: int, per_channel: bool
) -> None:
    model, x = dense(dtype, seed, factor * 2.0**-right, per_channel=per_channel and dtype == "int8")
    (ours,) = oracle.run(import_model(model).module, get_mode(LITERT_REFERENCE), [x])
    np.testing.assert_array_equal(ours, expected(model, x))


def test_the_least_accumulator_is_scaled_as_the_others() -> None:
    """The magnitude of the smallest accumulator, -2**31, does not fit int32."""
    weights, limits = np.ones((UNITS, DEPTH), np.int8), np.iinfo(np.int32)
    bias = np.array([limits.min, limits.min + 1, limits.max - 100, *range(UNITS - 3)], np.int32)
    quants = Quant(1.0, 3), Quant([2.0**-24, *[2.0**-20] * (UNITS - 1)]), Quant(1.2)
    data = fully_connected_model((ROWS, DEPTH), weights, bias, *quants)
    rest = np.tile(np.arange(DEPTH, dtype=np.int8), (ROWS, 1))
    assert_equals_litert(data, LITERT_REFERENCE, [[np.full((ROWS, DEPTH), 3, np.int8)], [rest]])


@pytest.mark.parametrize("dtype", sorted(POINTS))
@pytest.mark.parametrize(("factor", "right"), [(1, 8), (3, 9), (45, 12)])
def test_compiled_it_does_so_too(dtype: str, factor: int, right: int, tmp_path: Path) -> None:
    model, x = dense(dtype, 1, factor * 2.0**-right)
    selection, (ours,) = run_selected(import_model(model).module, detect_host().target, LITERT_REFERENCE, [x], tmp_path)
    assert selection.layers, "no kernel of the library computes the layer"
    np.testing.assert_array_equal(ours, expected(model, x))
