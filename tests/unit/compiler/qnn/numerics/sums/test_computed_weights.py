"""Layers whose weights are computed while the model runs give the sums of the same layers with constant weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.batch.grow import batched
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import LITERT_REFERENCE, ONNXRUNTIME, XNNPACK
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array
from service.core.target import parse_target
from tests.support.qnn_models import STORED_MODES, Emit, compile_and_run_all, module_of, u8
from tests.support.selected import in_turns, run_selected

RNG = np.random.default_rng(0)
GPU = parse_target("cuda-sm_80")  # emulated
TARGETS = [*in_turns(LITERT_REFERENCE, XNNPACK, ONNXRUNTIME), (GPU, LITERT_REFERENCE)]
X_TYPE, OUT_TYPE = u8(0.03, 120), u8(1.5, 128)
WEIGHT_TYPES = {
    "symmetric": QuantizedType("int8", (0.01,)),
    "one zero point": QuantizedType("uint8", (0.01,), (77,)),
    "by filter": QuantizedType("int8", (0.01, 0.02, 0.005, 0.03), (3, -128, 0, 127), axis=0),
    "16 bits": QuantizedType("int16", (0.001,), (-5,)),
}
SHAPES = {
    "conv2d": ((2, 6, 5, 4), (4, 3, 2, 2)),
    "conv2d_transpose": ((2, 4, 5, 3), (4, 3, 2, 3)),
    "dense": ((3, 8), (4, 8)),
}
LAYERS: dict[str, Callable[..., relax.Call]] = {
    "conv2d": ops.conv2d,
    "conv2d_transpose": ops.conv2d_transpose,
    "dense": ops.dense,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "conv2d": {"strides": (2, 1), "padding": (1, 0, 1, 1), "dilation": (1, 2), "groups": 2},
    "conv2d_transpose": {"strides": (2, 1), "padding": (1, 0, 1, 1), "output_padding": (1, 0)},
    "dense": {},
}
BIAS = np.array([-1000, 3, 7, 100000], np.int32)


def layer(name: str, weight_type: QuantizedType, weights: Array | None, has_bias: bool = True) -> tvm.IRModule:
    """Returns a layer. Its weights are the second input if `weights` is None, and the bias is computed too."""
    shape, weights_shape = SHAPES[name]
    computed = [] if weights is not None else [(weights_shape, weight_type.dtype), ((4,), "int32")]

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        weight = inputs[1] if weights is None else relax.const(weights)
        bias = inputs[2] if weights is None else relax.const(BIAS)
        sums = emit(LAYERS[name](inputs[0], weight, bias if has_bias else None, X_TYPE, weight_type, **OPTIONS[name]))
        sums_type = accumulator_type(X_TYPE, weight_type, len(shape) - 1)
        return emit(ops.requantize(sums, sums_type, OUT_TYPE))

    return module_of([(shape, "uint8"), *computed], body)


def operands(name: str, weight_type: QuantizedType) -> tuple[Array, Array]:
    shape, weights_shape = SHAPES[name]
    limits = np.iinfo(weight_type.dtype)
    weights = RNG.integers(limits.min, limits.max, weights_shape, endpoint=True).astype(weight_type.dtype)
    return RNG.integers(0, 256, shape).astype(np.uint8), weights


@pytest.mark.parametrize("has_bias", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("kind", WEIGHT_TYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_computed_weights_give_the_sums_of_constant_ones(name: str, kind: str, has_bias: bool) -> None:
    weight_type, mode = WEIGHT_TYPES[kind], get_mode(LITERT_REFERENCE)
    x, weights = operands(name, weight_type)
    (expected,) = oracle.run(layer(name, weight_type, weights, has_bias), mode, [x])
    computed = layer(name, weight_type, None, has_bias)
    inputs = [x, weights, BIAS]
    np.testing.assert_array_equal(oracle.run(computed, mode, inputs)[0], expected)
    np.testing.assert_array_equal(compile_and_run_all(canonicalize(computed, mode), inputs)[0], expected)


@pytest.mark.parametrize("mode", STORED_MODES)
def test_every_mode_requantizes_the_sums(mode: str) -> None:
    weight_type = WEIGHT_TYPES["symmetric"]
    x, weights = operands("conv2d", weight_type)
    constant, computed = layer("conv2d", weight_type, weights, False), layer("conv2d", weight_type, None, False)
    (expected,) = oracle.run(constant, get_mode(mode), [x])
    got = compile_and_run_all(canonicalize(computed, get_mode(mode)), [x, weights, BIAS])[0]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("target", "mode"), TARGETS, ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_compiled_models_equal_the_oracle(target, name: str, mode: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    weight_type = WEIGHT_TYPES["by filter"]
    x, weights = operands(name, weight_type)
    module = layer(name, weight_type, None)
    _, (got,) = run_selected(module, target, mode, [x, weights, BIAS], tmp_path)
    np.testing.assert_array_equal(got, oracle.run(module, get_mode(mode), [x, weights, BIAS])[0])


def test_weights_may_be_stored_by_an_operator_of_the_model() -> None:
    """Each filter is quantized with its own scale while the model runs."""
    weight_type = WEIGHT_TYPES["by filter"]

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        weight = emit(ops.quantize(inputs[1], weight_type))
        return emit(ops.dense(inputs[0], weight, None, X_TYPE, weight_type))

    module, mode = module_of([((3, 8), "uint8"), ((4, 8), "float32")], body), get_mode(LITERT_REFERENCE)
    x, stored = operands("dense", weight_type)
    real = ((stored.astype(np.int64) - np.array(weight_type.zero_points)[:, None]) * 0.013).astype(np.float32)
    (expected,) = oracle.run(module, mode, [x, real])
    np.testing.assert_array_equal(compile_and_run_all(canonicalize(module, mode), [x, real])[0], expected)


def test_samples_with_weights_of_their_own_are_not_batched() -> None:
    weight_type = WEIGHT_TYPES["symmetric"]

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        weight = emit(ops.quantize(inputs[0], weight_type))
        stored = emit(ops.quantize(inputs[0], X_TYPE))
        return emit(ops.dense(stored, weight, None, X_TYPE, weight_type))

    with pytest.raises(UnsupportedOperator, match=r"cannot batch the model: dense .* mixes samples"):
        batched(module_of([((1, 8), "float32")], body), 2)
