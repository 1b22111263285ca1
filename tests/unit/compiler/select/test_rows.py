"""Regions that are computed row by row equal the oracle, bit for bit, for any shape and memory layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.real import LANES, PACKETS
from service.compiler.qnn.types import QuantizedType
from service.compiler.select.selection import Selection
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from service.core.target import Target
from tests.support.qnn_models import Emit, float32, module_of
from tests.support.selected import RUNNING, run_selected

HERE = RUNNING
BYTES = QuantizedType("uint8", (float32(0.05),), (120,))
SIGNED = QuantizedType("int8", (float32(0.03),), (-5,))
Network = Callable[[Emit, list[relax.Var]], relax.Var | list[relax.Var]]

pytestmark = [
    pytest.mark.skipif(not HERE, reason="no x86-64 target runs here"),
    pytest.mark.parametrize("target", HERE, ids=lambda target: target.name),
]


def number(value: float) -> relax.Expr:
    return relax.const(np.array(value, np.float32))


def check(
    network: Network, inputs: list[Array], target: Target, path: Path, kernels: list[str] | None = None
) -> Selection:
    module = module_of([(each.shape, each.dtype.name) for each in inputs], network)
    expected = oracle.run(module, get_mode(ONNXRUNTIME), inputs)
    selection, actual = run_selected(module, target, ONNXRUNTIME, inputs, path)
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if kernels is not None:
        assert [layer["kernel"] for layer in selection.layers] == kernels
    return selection


def reals(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(0, 3, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(4,), (3, 16), (7, 17), (2, 5, 31), (1, 3, 1, 100), (1, 5), (3, 257)], ids=str)
def test_differences_from_the_largest_value(shape: tuple[int, ...], target: Target, tmp_path: Path) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        (x,) = inputs
        largest = emit(relax.op.max(x, axis=[-1], keepdims=True))
        least = emit(relax.op.min(x, axis=[-1], keepdims=True))
        width = emit(relax.op.subtract(largest, least))
        moved = emit(relax.op.multiply(emit(relax.op.subtract(x, largest)), number(0.7)))
        return emit(relax.op.add(emit(relax.op.divide(moved, width)), x))

    check(network, [reals(*shape)], target, tmp_path, ["rows"])


def test_bytes_and_channels(target: Target, tmp_path: Path) -> None:
    """Dequantizes, scales each channel, masks, and quantizes."""
    rng = np.random.default_rng(5)
    scale, moved = (rng.normal(1, 0.3, 37).astype(np.float32) for _ in range(2))

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x, y, mask = inputs
        real = emit(ops.dequantize(x, BYTES))
        total = emit(relax.op.add(real, emit(ops.dequantize(y, SIGNED))))
        scaled = emit(relax.op.add(emit(relax.op.multiply(total, relax.const(scale))), relax.const(moved)))
        kept = emit(relax.op.where(mask, scaled, number(-1.0)))
        return emit(ops.quantize(kept, SIGNED))

    x, y = rng.integers(0, 256, (2, 9, 37)).astype(np.uint8), rng.integers(-128, 128, (2, 9, 37)).astype(np.int8)
    check(network, [x, y, rng.integers(0, 2, (2, 1, 37)).astype(bool)], target, tmp_path, ["rows"])


def test_products_are_rounded(target: Target, tmp_path: Path) -> None:
    """Products are rounded before they are added, including products with a scale."""

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x, y = inputs
        return emit(relax.op.add(emit(ops.dequantize(x, BYTES)), emit(relax.op.multiply(y, number(0.3)))))

    stored = np.random.default_rng(3).integers(0, 256, (40, 33)).astype(np.uint8)
    check(network, [stored, reals(40, 33)], target, tmp_path, ["rows"])


def test_several_results(target: Target, tmp_path: Path) -> None:
    """Some results have one value for each element, and some one for each row."""

    def network(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        x, y = inputs
        total = emit(relax.op.add(emit(relax.op.multiply(x, number(1.1))), y))
        largest = emit(relax.op.max(total, axis=[-1], keepdims=True))
        stored = emit(ops.quantize(emit(relax.op.divide(total, largest)), BYTES))
        return [total, largest, stored, emit(relax.op.greater(total, y))]

    check(network, [reals(3, 6, 33), reals(33)], target, tmp_path, ["rows"])


def test_operators_around_another_operator_are_two_regions(target: Target, tmp_path: Path) -> None:
    """A maximum over the whole tensor separates the operators, so they become two regions."""

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        (x,) = inputs
        doubled = emit(relax.op.multiply(emit(relax.op.add(x, number(1.0))), number(2.0)))
        whole = emit(relax.op.max(doubled, axis=[0, 1], keepdims=True))
        return emit(relax.op.sqrt(emit(relax.op.abs(emit(relax.op.subtract(doubled, whole))))))

    check(network, [reals(20, 30)], target, tmp_path, ["rows", "rows"])


@pytest.mark.parametrize("columns", [5, 16, 37, 197, 256])
def test_softmax(columns: int, target: Target, tmp_path: Path) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x, mask = inputs
        seen = emit(relax.op.add(x, mask))
        moved = emit(relax.op.subtract(seen, emit(relax.op.max(seen, axis=[-1], keepdims=True))))
        grown = emit(ops.real_function("exp", moved))
        return emit(relax.op.divide(grown, emit(ops.real_sum(grown, axes=[3], order=LANES))))

    check(network, [reals(2, 3, 7, columns), reals(2, 1, 1, columns)], target, tmp_path, ["rows"])


def test_rows_that_are_masked_as_a_whole(target: Target, tmp_path: Path) -> None:
    """The softmax of a completely masked row is NaN. Exporters replace it by zero."""

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        (x,) = inputs
        moved = emit(relax.op.subtract(x, emit(relax.op.max(x, axis=[-1], keepdims=True))))
        grown = emit(ops.real_function("exp", moved))
        share = emit(relax.op.divide(grown, emit(ops.real_sum(grown, axes=[1], order=LANES))))
        return emit(relax.op.where(emit(relax.op.isnan(share)), number(0.0), share))

    x = reals(5, 20)
    x[1], x[3, 7:] = -np.inf, -np.inf
    check(network, [x], target, tmp_path, ["rows"])


@pytest.mark.parametrize("columns", [12, 192])
def test_layer_norm_of_bytes(columns: int, target: Target, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    scale, moved = (rng.normal(1, 0.3, columns).astype(np.float32) for _ in range(2))

    def mean(emit: Emit, x: relax.Var) -> relax.Var:
        return emit(relax.op.divide(emit(ops.real_sum(x, axes=[2], order=LANES)), number(columns)))

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = emit(ops.dequantize(inputs[0], BYTES))
        centered = emit(relax.op.subtract(x, mean(emit, x)))
        variance = mean(emit, emit(relax.op.multiply(centered, centered)))
        deviation = emit(relax.op.sqrt(emit(relax.op.add(variance, number(1e-5)))))
        scaled = emit(relax.op.multiply(emit(relax.op.divide(centered, deviation)), relax.const(scale)))
        gelu = emit(ops.real_function("erf", emit(relax.op.add(scaled, relax.const(moved)))))
        return emit(ops.quantize(emit(ops.real_function("tanh", emit(ops.real_function("logistic", gelu)))), SIGNED))

    check(network, [rng.integers(0, 256, (1, 11, columns)).astype(np.uint8)], target, tmp_path, ["rows"])


@pytest.mark.parametrize("columns", [4, 7, 8, 12, 16, 29, 31, 64, 192])
def test_layer_norm(columns: int, target: Target, tmp_path: Path) -> None:
    """The mean is computed in float64. Squares are added by fused multiply-adds; the squares of the last columns are
    added separately."""
    rng = np.random.default_rng(columns)
    scale, addend = (rng.normal(1, 0.3, columns).astype(np.float32) for _ in range(2))

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        (x,) = inputs
        moved = emit(relax.op.subtract(x, emit(ops.real_mean(x))))
        variance = emit(relax.op.divide(emit(ops.real_squares(moved)), number(columns)))
        root = emit(relax.op.sqrt(emit(relax.op.add(variance, number(1e-5)))))
        result = emit(relax.op.multiply(moved, emit(relax.op.divide(number(1), root))))
        return emit(ops.real_fma(result, relax.const(scale), relax.const(addend)))

    check(network, [reals(3, 13, columns)], target, tmp_path, ["rows"])


@pytest.mark.parametrize("columns", [4, 8, 12, 20, 64])
def test_sums_in_packets(columns: int, target: Target, tmp_path: Path) -> None:
    """The number of columns is such that all rows begin at aligned addresses."""

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        (x,) = inputs
        squared = emit(relax.op.multiply(x, x))
        total = emit(ops.real_sum(squared, axes=[2], order=PACKETS, rows=26))
        return emit(relax.op.divide(x, emit(relax.op.sqrt(total))))

    check(network, [reals(2, 13, columns)], target, tmp_path, ["rows"])


@pytest.mark.parametrize("columns", [5, 64])
@pytest.mark.parametrize("stored", [BYTES, SIGNED], ids=["uint8", "int8"])
def test_one_stored_value_for_each_row(stored: QuantizedType, columns: int, target: Target, tmp_path: Path) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        largest = emit(relax.op.max(inputs[0], axis=[-1], keepdims=True))
        return [emit(ops.quantize(largest, stored)), emit(relax.op.greater(largest, number(5)))]

    check(network, [reals(6, columns)], target, tmp_path, ["rows"])


def test_rows_at_unaligned_addresses_are_not_a_region(target: Target, tmp_path: Path) -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        (x,) = inputs
        total = emit(ops.real_sum(x, axes=[1], order=PACKETS, rows=7))
        return emit(relax.op.divide(x, emit(relax.op.sqrt(emit(relax.op.abs(total))))))

    check(network, [reals(7, 21)], target, tmp_path, [])
