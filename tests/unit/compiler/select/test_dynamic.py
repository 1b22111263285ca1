"""Layers whose activations are quantized as they come: kernels of rows compute what the oracle does, in both modes of
LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.dynamic import CONV2D, DENSE, DEPTHWISE, FACTOR, SCALE, ZERO_POINT
from service.compiler.qnn.types import QuantizedType
from service.core.numerics import LITERT_REFERENCE, XNNPACK
from service.core.target import Target
from service.core.vectors import Array
from tests.support.qnn_models import Emit, module_of
from tests.support.selected import RUNNING, run_selected

HERE = RUNNING
Network = Callable[[Emit, list[relax.Var]], relax.Var]
STORED = QuantizedType("int8", (1.0,), (0,))

pytestmark = [
    pytest.mark.skipif(not HERE, reason="no x86-64 target runs here"),
    pytest.mark.parametrize("target", HERE, ids=lambda target: target.name),
    pytest.mark.parametrize("mode", [LITERT_REFERENCE, XNNPACK]),
]


def layer(
    emit: Emit, x: relax.Var, filters: int, axes: Sequence[int], kernel: str, *, symmetric: bool = False
) -> relax.Var:
    """A dense layer, or a convolution of one tap by pixel, or one of 3x3 channel by channel."""
    channels, rng = int(x.ty.shape[-1]), np.random.default_rng(filters)
    taps = {DENSE: (channels,), CONV2D: (1, 1, channels), DEPTHWISE: (3, 3, 1)}[kernel]
    weights = rng.integers(-127, 128, (filters, *taps)).astype(np.int8)
    low, high = (emit(extreme(x, axis=list(axes), keepdims=True)) for extreme in (relax.op.min, relax.op.max))
    shared = [1, 2] if kernel == CONV2D else []
    scale, point, factor = (
        emit(ops.dynamic_parameter(low, high, parameter=each, shared=shared, symmetric=symmetric, kernel=kernel))
        for each in (SCALE, ZERO_POINT, FACTOR)
    )
    stored = emit(ops.dynamic_quantize(x, point, factor, kernel=kernel))
    if kernel == DENSE:
        sums = emit(ops.dense(stored, relax.const(weights), None, STORED, STORED))
    else:
        groups = 1
        if kernel == DEPTHWISE:
            stored, groups = emit(ops.dynamic_pad(stored, point, (1, 1, 1, 1))), channels
        sums = emit(ops.conv2d(stored, relax.const(weights), None, STORED, STORED, groups=groups))
    totals = relax.const(weights.reshape(filters, -1).sum(axis=1, dtype=np.int32))
    scales, bias = (relax.const(rng.uniform(0.01, 1, filters).astype(np.float32)) for _ in range(2))
    return emit(ops.dynamic_scale(sums, scale, point, totals, scales, bias, kernel=kernel))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rows", "depth"), [(1, 16), (5, 37), (9, 64)])
def test_dense_layers(rows: int, depth: int, symmetric: bool, mode: str, target: Target, tmp_path: Path) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        first = emit(relax.op.nn.relu(layer(emit, inputs[0], 33, [1], DENSE, symmetric=symmetric)))
        return layer(emit, first, 24, [1], DENSE, symmetric=symmetric)

    x = np.random.default_rng(depth).normal(0.3, 1, (rows, depth)).astype(np.float32)
    check(network, x, mode, target, tmp_path)


@pytest.mark.parametrize("kernel", [CONV2D, DEPTHWISE])
@pytest.mark.parametrize("shape", [(1, 6, 5, 16), (2, 9, 9, 24)], ids=str)
def test_images(shape: tuple[int, ...], kernel: str, mode: str, target: Target, tmp_path: Path) -> None:
    axes = [3] if kernel == CONV2D else [1, 2, 3]

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        first = emit(relax.op.maximum(layer(emit, inputs[0], shape[3], axes, kernel), relax.const(0.5, "float32")))
        return layer(emit, first, 24, [3], CONV2D)

    x = np.random.default_rng(shape[3]).normal(0.3, 1, shape).astype(np.float32)
    check(network, x, mode, target, tmp_path)


def check(network: Network, x: Array, mode: str, target: Target, path: Path) -> None:
    module = module_of([(x.shape, "float32")], network)
    (expected,) = oracle.run(module, get_mode(mode), [x])
    selection, (actual,) = run_selected(module, target, mode, [x], path)
    np.testing.assert_array_equal(actual, expected)
    assert not selection.plain
    assert {each["kernel"] for each in selection.layers} <= {"rows", "conv", "matrix", "depthwise", "pack"}
