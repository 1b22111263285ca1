"""Tokens `[N, T, C]` stay images between kernels, so a transformer's feed-forward part needs no layout changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import Target
from tests.support.qnn_models import Emit, float32, module_of, u8
from tests.support.selected import RUNNING, run_selected

HERE = RUNNING
X = u8(0.05, 128)
BATCH, TOKENS, CHANNELS = 2, 7, 40
SHAPE = (BATCH, TOKENS, CHANNELS)


def layer(emit: Emit, x: relax.Var, filters: int) -> relax.Var:
    """Emits a dense layer on every token and a separate addition of its bias, as the ONNX importer does."""
    rng = np.random.default_rng(filters)
    channels = int(x.ty.shape[2])
    weight_type = QuantizedType("int8", tuple(map(float32, rng.uniform(1e-3, 1e-2, filters))), axis=0)
    weight = relax.const(rng.integers(-127, 128, (filters, 1, 1, channels)).astype(np.int8))
    pixels = emit(relax.op.reshape(x, [BATCH, TOKENS, 1, channels]))
    sums = emit(ops.conv2d(pixels, weight, None, X, weight_type))
    taken = emit(ops.requantize(sums, accumulator_type(X, weight_type, axis=3), X))
    tokens = emit(relax.op.reshape(taken, [BATCH, TOKENS, filters]))
    bias = relax.const(rng.integers(0, 256, filters).astype(np.uint8))
    return emit(ops.add(bias, tokens, X, X, X))


def feed_forward(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
    wide = layer(emit, inputs[0], 72)
    wide = emit(ops.table(wide, X, X, np.random.default_rng(0).integers(0, 256, 256).tolist()))
    return emit(ops.add(inputs[0], layer(emit, wide, CHANNELS), X, X, X))


@pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
def test_a_feed_forward_part_equals_the_oracle_without_a_reorder_inside(target: Target, tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(0, 256, SHAPE).astype(np.uint8)
    module = module_of([(x.shape, "uint8")], feed_forward)
    (expected,) = oracle.run(module, get_mode(ONNXRUNTIME), [x])
    selection, (actual,) = run_selected(module, target, ONNXRUNTIME, [x], tmp_path)
    np.testing.assert_array_equal(actual, expected)
    kernels = [layer["kernel"] for layer in selection.layers]
    assert [kernel for kernel in kernels if kernel != "pack"] == [
        "conv",
        "add",
        "table",
        "conv",
        "add",
        "add",
        "unpack",
    ]
    assert selection.plain == []


@pytest.mark.skipif(not HERE, reason="no x86-64 target runs here")
def test_a_mean_of_tokens_is_not_a_mean_of_pixels(tmp_path: Path) -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        tokens = emit(ops.add(layer(emit, inputs[0], CHANNELS), inputs[0], X, X, X))
        return emit(ops.mean(tokens, X, X, axes=(1,), keepdims=False))

    x = np.random.default_rng(2).integers(0, 256, SHAPE).astype(np.uint8)
    module = module_of([(x.shape, "uint8")], body)
    (expected,) = oracle.run(module, get_mode(ONNXRUNTIME), [x])
    _, (actual,) = run_selected(module, HERE[0], ONNXRUNTIME, [x], tmp_path)
    np.testing.assert_array_equal(actual, expected)
