"""Layers that quantize their activations at run time equal the oracle.

Row kernels compute them in both modes of LiteRT, and in the modes of PyTorch that have such layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.dynamic import CONV2D, DENSE, DEPTHWISE, FACTOR, SCALE, ZERO_POINT
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import FBGEMM, LITERT_REFERENCE, QNNPACK, XNNPACK
from service.core.models.arrays import Array
from service.core.target import Target
from tests.support.qnn_models import Emit, module_of
from tests.support.selected import RUNNING, run_selected

HERE = RUNNING
Network = Callable[[Emit, list[relax.Var]], relax.Var]
STORED = QuantizedType("int8", (1.0,), (0,))

pytestmark = [
    pytest.mark.skipif(not HERE, reason="no x86-64 target runs here"),
    pytest.mark.parametrize("target", HERE, ids=lambda target: target.name),
]


def slow(*values: Any) -> Any:
    """Parameters of `make test-all` only."""
    return pytest.param(*values, marks=pytest.mark.slow)


OF_LITERT = pytest.mark.parametrize("mode", [LITERT_REFERENCE, XNNPACK])
OF_PYTORCH = pytest.mark.parametrize("mode", [FBGEMM, QNNPACK])


def layer(emit: Emit, x: relax.Var, filters: int, axes: Sequence[int], kernel: str, **kind: bool) -> relax.Var:
    """Emits a dense layer, a 1x1 convolution, or a depthwise 3x3 convolution, depending on `kernel`."""
    channels, rng = int(x.ty.shape[-1]), np.random.default_rng(filters)
    taps = {DENSE: (channels,), CONV2D: (1, 1, channels), DEPTHWISE: (3, 3, 1)}[kernel]
    weights = rng.integers(-127, 128, (filters, *taps)).astype(np.int8)
    low, high = (emit(extreme(x, axis=list(axes), keepdims=True)) for extreme in (relax.op.min, relax.op.max))
    shared = [1, 2] if kernel == CONV2D else []
    scale, point, factor = (
        emit(ops.dynamic_parameter(low, high, parameter=each, shared=shared, kernel=kernel, **kind))
        for each in (SCALE, ZERO_POINT, FACTOR)
    )
    stored = emit(ops.dynamic_quantize(x, point, factor, kernel=kernel))
    if kernel == DENSE:
        sums = dense(emit, stored, weights)
    else:
        groups = 1
        if kernel == DEPTHWISE:
            stored, groups = emit(ops.dynamic_pad(stored, point, (1, 1, 1, 1))), channels
        sums = emit(ops.conv2d(stored, relax.const(weights), None, STORED, STORED, groups=groups))
    totals = relax.const(weights.reshape(filters, -1).sum(axis=1, dtype=np.int32))
    scales, bias = (relax.const(rng.uniform(0.01, 1, filters).astype(np.float32)) for _ in range(2))
    return emit(ops.dynamic_scale(sums, scale, point, totals, scales, bias, kernel=kernel))


def dense(emit: Emit, x: relax.Var, weights: Array) -> relax.Var:
    shape = [int(dim) for dim in x.ty.shape]
    rows = x if len(shape) == 2 else emit(relax.op.reshape(x, (-1, shape[-1])))
    sums = emit(ops.dense(rows, relax.const(weights), None, STORED, STORED))
    return sums if rows is x else emit(relax.op.reshape(sums, (*shape[:-1], len(weights))))


@OF_LITERT
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rows", "depth"), [slow(1, 16), (5, 37), slow(9, 64)])
def test_dense_layers(rows: int, depth: int, symmetric: bool, mode: str, target: Target, tmp_path: Path) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        first = emit(relax.op.nn.relu(layer(emit, inputs[0], 33, [1], DENSE, symmetric=symmetric)))
        return layer(emit, first, 24, [1], DENSE, symmetric=symmetric)

    x = np.random.default_rng(depth).normal(0.3, 1, (rows, depth)).astype(np.float32)
    check(network, x, mode, target, tmp_path)


@OF_LITERT
@pytest.mark.parametrize("kernel", [CONV2D, DEPTHWISE])
@pytest.mark.parametrize("shape", [(1, 6, 5, 16), slow((2, 9, 9, 24))], ids=str)
def test_images(shape: tuple[int, ...], kernel: str, mode: str, target: Target, tmp_path: Path) -> None:
    axes = [3] if kernel == CONV2D else [1, 2, 3]

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        first = emit(relax.op.maximum(layer(emit, inputs[0], shape[3], axes, kernel), relax.const(0.5, "float32")))
        return layer(emit, first, 24, [3], CONV2D)

    x = np.random.default_rng(shape[3]).normal(0.3, 1, shape).astype(np.float32)
    check(network, x, mode, target, tmp_path)


@OF_PYTORCH
@pytest.mark.parametrize("reduced", [True, False])
@pytest.mark.parametrize(("rows", "spread"), [(5, 3e-3), slow(9, 30.0)])
def test_one_range_for_all_rows(
    rows: int, spread: float, reduced: bool, mode: str, target: Target, tmp_path: Path
) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        first = emit(relax.op.nn.relu(layer(emit, inputs[0], 33, [1, 2], DENSE, reduced=reduced)))
        return layer(emit, first, 24, [1, 2], DENSE, reduced=reduced)

    x = np.random.default_rng(rows).normal(0.3 * spread, spread, (1, rows, 37)).astype(np.float32)
    check(network, x, mode, target, tmp_path, OF_THE_WHOLE)


@OF_PYTORCH
@pytest.mark.parametrize(
    "low_high", [(0.0, 0.0), slow((0.0, 1e-5)), slow((-1e-5, 0.0)), (-1e-39, 2e-39), slow((-1e-5, 2e-5)), (-1e30, 1e30)]
)
def test_extreme_ranges(low_high: tuple[float, float], mode: str, target: Target, tmp_path: Path) -> None:
    """The activations are all zero, almost zero, or very large."""

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return layer(emit, inputs[0], 16, [1, 2], DENSE, reduced=True)

    x = np.resize(np.array(low_high, np.float32), (1, 2, 16))
    check(network, x, mode, target, tmp_path, OF_THE_WHOLE)


# The operators without a row kernel if one range is computed for a whole tensor.
OF_THE_WHOLE = frozenset({"min", "max", "dynamic_parameter"})


def check(
    network: Network, x: Array, mode: str, target: Target, path: Path, plain: frozenset[str] = frozenset()
) -> None:
    module = module_of([(x.shape, "float32")], network)
    (expected,) = oracle.run(module, get_mode(mode), [x])
    selection, (actual,) = run_selected(module, target, mode, [x], path)
    np.testing.assert_array_equal(actual, expected)
    assert {each["operators"] for each in selection.plain} <= plain
    assert {each["kernel"] for each in selection.layers} <= {"rows", "conv", "matrix", "depthwise", "pack"}
