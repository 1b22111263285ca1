"""Counting changes no output, and compiled counts equal the oracle's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.importers.auto import import_model
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.counting import count_values
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import PT2E, XNNPACK
from service.core.models.ranges import ABOVE, BELOW, BINS, HEAD, INSIDE, LARGEST, SMALLEST
from tests.support.qnn_models import Emit, compile_and_run_all, i8, module_of, u8
from tests.support.simulated_layers import MODE, inputs_of, layer

EXAMPLES = Path(__file__).parents[4] / "examples"
UNIT = i8(1.0)


@pytest.mark.parametrize("name", ["digits_int8.tflite", pytest.param("digits_uint8.tflite", marks=pytest.mark.slow)])
def test_counting_changes_no_output_of_a_model(name: str) -> None:
    imported = import_model((EXAMPLES / name).read_bytes(), lambda op, tensor: None, {})
    counting, mode = count_values(imported.module), get_mode(XNNPACK)
    (spec,) = imported.signature.inputs
    limits = np.iinfo(spec.dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max + 1, spec.shape).astype(spec.dtype)
    (expected,) = oracle.run(imported.module, mode, [x])
    counted = oracle.run(counting.module, mode, [x])
    compiled = compile_and_run_all(canonicalize(counting.module, mode), [x])
    np.testing.assert_array_equal(counted[0], expected)
    assert len(counted) == 1 + len(counting.ranges) == 9
    for ours, theirs in zip(compiled, counted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ["conv2d", "conv2d_transpose", "dense", "matmul"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_compiled_counts_equal_the_oracle(kind: str, seed: int) -> None:
    module = layer(kind, seed)
    counting, inputs = count_values(module), inputs_of(module, seed)
    expected = oracle.run(counting.module, MODE, inputs)
    np.testing.assert_array_equal(expected[0], oracle.run(module, MODE, inputs)[0])
    for ours, theirs in zip(compile_and_run_all(canonicalize(counting.module, MODE), inputs), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [stored.high for stored in counting.ranges] == [255, 255]  # quantize and requantize


def _both(module: tvm.IRModule, inputs: list[np.ndarray[Any, Any]], mode: Mode = MODE) -> np.ndarray[Any, Any]:
    """Returns the counts of the module's only counted operator, which the oracle and compiled code must agree on."""
    counting = count_values(module)
    _, counts = oracle.run(counting.module, mode, inputs)
    np.testing.assert_array_equal(compile_and_run_all(canonicalize(counting.module, mode), inputs)[1], counts)
    return counts


def test_values_beyond_the_bounds_are_counted_with_their_distance() -> None:
    module = module_of([((6,), "float32")], lambda emit, params: emit(ops.quantize(params[0], UNIT)))
    counts = _both(module, [np.array([-129, -128, 0, 127.4, 128, 5000], np.float32)])
    assert (counts[BELOW], counts[ABOVE]) == (1, 2)
    assert (counts[SMALLEST], counts[LARGEST]) == (-129, 5000)
    histogram = counts[HEAD:]
    assert histogram.sum() == 6
    assert histogram[INSIDE - 1] == 1  # -129
    assert histogram[INSIDE] == 1  # -128
    assert histogram[2 * INSIDE - 1] == 1  # 127
    assert histogram[2 * INSIDE] == 1  # 128
    assert histogram[BINS - 1] == 1  # 5000 is beyond the histogram


def test_nan_and_infinite_values_are_counted() -> None:
    module = module_of([((3,), "float32")], lambda emit, params: emit(ops.quantize(params[0], UNIT)))
    counts = _both(module, [np.array([np.nan, np.inf, -np.inf], np.float32)])
    assert (counts[BELOW], counts[ABOVE]) == (1, 1)


@pytest.mark.parametrize(("operator", "clipped"), [(ops.add, 1), (ops.sub, 0), (ops.mul, 2)])
def test_results_of_two_operands_are_counted_before_they_are_clamped(operator: Any, clipped: int) -> None:
    def body(emit: Emit, params: list[relax.Var]) -> relax.Var:
        return emit(operator(params[0], params[1], UNIT, UNIT, UNIT))

    module = module_of([((2,), "int8"), ((2,), "int8")], body)
    counts = _both(module, [np.array([100, 20], np.int8), np.array([100, 10], np.int8)], get_mode(XNNPACK))
    assert counts[ABOVE] == clipped
    assert counts[LARGEST] == {ops.add: 200, ops.sub: 10, ops.mul: 10_000}[operator]


def test_a_bias_of_real_values_is_part_of_the_counted_value() -> None:
    weights = QuantizedType("int8", (0.5, 0.25), axis=0)
    accumulators = QuantizedType("int32", (0.5, 0.25), axis=1)
    bias = relax.const(np.array([200, 0], np.float32))

    def body(emit: Emit, params: list[relax.Var]) -> relax.Var:
        ones = relax.const(np.ones((2, 1), np.int8))
        sums = emit(ops.dense(params[0], ones, None, u8(1.0), weights))
        return emit(ops.requantize(sums, accumulators, u8(1.0), bias))

    module = module_of([((1, 1), "uint8")], body)
    counts = _both(module, [np.array([[240]], np.uint8)], get_mode(PT2E))
    assert (counts[ABOVE], counts[LARGEST], counts[SMALLEST]) == (1, 320, 60)


def test_real_values_of_16_bits_are_counted() -> None:
    half = QuantizedType("int8", (1.0,), expressed="float16")

    def body(emit: Emit, params: list[relax.Var]) -> relax.Var:
        return emit(ops.quantize(emit(relax.op.astype(params[0], "float16")), half))

    counts = _both(module_of([((2,), "float32")], body), [np.array([2049, -3], np.float32)])
    assert (counts[ABOVE], counts[LARGEST], counts[SMALLEST]) == (1, 2048, -3)  # float16 has 11 significant bits


def test_results_that_cannot_exceed_their_range_are_not_counted() -> None:
    probability = i8(1 / 256, -128)
    module = module_of([((1, 4), "int8")], lambda emit, params: emit(ops.softmax(params[0], UNIT, probability)))
    assert count_values(module).ranges == ()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: ops.value_counts(x, UNIT, UNIT), "is float32, but its type is"),
        (lambda x: ops.value_counts(ops.quantize(x, UNIT), UNIT), "real values must be float32, not int8"),
    ],
)
def test_operands_that_do_not_fit_are_refused(call: Any, reason: str) -> None:
    with pytest.raises(IllTyped, match=reason):
        module_of([((3, 4), "float32")], lambda emit, params: emit(call(params[0])))
