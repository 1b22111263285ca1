"""The kernel for products of two computed matrices equals the oracle, bit for bit, on every instruction set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.portable import PortableIsa
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType
from service.core.target import TARGETS, Target
from tests.support.bounded import check_lengths, of_lengths
from tests.support.qnn_models import Emit, float32, module_of
from tests.support.selected import RUNNING, run_selected, selected

import tvm  # isort: skip

HERE = RUNNING
MODES = ["litert-reference", "onnxruntime"]
Shape = tuple[int, ...]
# (shape of the first matrices, columns of the second, storage, zero points). Some sizes fill blocks and groups, and
# some do not. Some zero points are 0, or at the ends of their range.
CASES: list[tuple[Shape, int, str, tuple[int, int, int]]] = [
    ((1, 8, 20, 32), 20, "int8", (5, -9, 3)),
    ((2, 3, 7, 8), 16, "uint8", (250, 3, 128)),
    ((1, 64), 100, "int8", (-128, 0, -128)),
    ((3, 9, 4), 70, "uint8", (0, 255, 0)),
    ((2, 33, 36), 48, "int8", (0, 128 - 1, 7)),
    ((1, 2, 5, 7), 9, "int8", (0, 0, 0)),
    ((2, 1, 3), 1, "uint8", (3, 4, 5)),
    ((1, 197, 197), 33, "uint8", (7, 130, 128)),
]


def product(
    shape: Shape,
    columns: int,
    storage: str,
    zero_points: tuple[int, int, int],
    batch: Shape | None = None,
    *,
    real: bool = False,
) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """Returns a module that multiplies matrices of `shape` by matrices with `columns` columns, and its inputs.

    Args:
        batch: the batch dimensions of the second matrices; by default those of the first.
        real: true if the result is dequantized, false if it is requantized.
    """
    rng = np.random.default_rng(0)
    shapes = shape, (*(shape[:-2] if batch is None else batch), shape[-1], columns)
    scales = [float32(scale) for scale in (0.02, 0.03, 0.02 * 0.03 * 90 * np.sqrt(shape[-1]))]
    lhs, rhs, out = (
        QuantizedType(storage, (scale,), (point,)) for scale, point in zip(scales, zero_points, strict=True)
    )

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        total = emit(ops.matmul(inputs[0], inputs[1], lhs, rhs))
        sums = QuantizedType("int32", (float32(lhs.scale * rhs.scale),), (0,))
        return emit(ops.dequantize(total, sums) if real else ops.requantize(total, sums, out))

    bounds = np.iinfo(storage)
    inputs = [rng.integers(bounds.min, bounds.max, each, storage, endpoint=True) for each in shapes]
    inputs[0][..., :1, :], inputs[1][..., :1] = bounds.max, bounds.min  # some sums are the largest possible ones
    return module_of([(each, storage) for each in shapes], body), inputs


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_product(target: Target, mode: str, case: tuple[Shape, int, str, tuple[int, int, int]], tmp_path: Path) -> None:
    module, inputs = product(*case)
    selection, (actual,) = run_selected(module, target, mode, inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(mode), inputs)[0])
    assert [(layer["operators"], layer["kernel"]) for layer in selection.layers] == [("matmul+requantize", "product")]
    assert selection.plain == []


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_product_of_real_values(
    target: Target, case: tuple[Shape, int, str, tuple[int, int, int]], tmp_path: Path
) -> None:
    module, inputs = product(*case, real=True)
    selection, (actual,) = run_selected(module, target, "onnxruntime", inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("onnxruntime"), inputs)[0])
    assert [(layer["operators"], layer["kernel"]) for layer in selection.layers] == [("matmul+dequantize", "product")]
    assert selection.plain == []


def test_products_that_differ_in_zero_points_and_scales_share_one_program() -> None:
    one, other = (product((1, 8, 20, 32), 20, "int8", points)[0] for points in ((5, -9, 3), (-7, 1, -127)))
    symbols = {*selected(one, TARGETS[0], MODES[0]).kernels, *selected(other, TARGETS[0], MODES[0]).kernels}
    assert len(symbols) == 1


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_the_kernel_runs_on_the_portable_instruction_set(target: Target, tmp_path: Path) -> None:
    module, inputs = product(*CASES[0])
    selection, (actual,) = run_selected(
        module, target, "xnnpack", inputs, tmp_path, lambda mode: SimdLibrary(PortableIsa(), mode)
    )
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("xnnpack"), inputs)[0])
    assert [layer["kernel"] for layer in selection.layers] == ["product"]


@pytest.mark.parametrize("target", HERE, ids=str)
def test_a_matrix_is_repeated_for_others(target: Target, tmp_path: Path) -> None:
    module, inputs = product((3, 2, 6, 8), 20, "uint8", (1, 2, 3), batch=(2,))
    selection, (actual,) = run_selected(module, target, "onnxruntime", inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("onnxruntime"), inputs)[0])
    assert [layer["kernel"] for layer in selection.layers] == ["product"]


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_sums_that_may_leave_32_bits_are_declined(target: Target) -> None:
    selection = selected(product((1, 1, 33_026), 1, "uint8", (0, 0, 0))[0], target, "onnxruntime")
    assert any("may leave 32 bits" in reason for reason in selection.declined.values())


LENGTHS = {19: range(1, 20), 5: range(1, 6), 37: (37, 1, 2, 3, 15, 16, 17, 35, 36), 64: (64, 1, 4, 31, 32, 33, 63)}


@pytest.mark.parametrize(("target", "longest"), of_lengths(LENGTHS))
@pytest.mark.parametrize("is_transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("of_scores", [False, True], ids=["depth", "columns"])
def test_positions_beyond_the_length_have_no_effect(
    of_scores: bool, is_transposed: bool, longest: int, target: Target, tmp_path: Path
) -> None:
    """`[…, length, length] x [length, N]`, or `[length, K] x [K, length]`."""
    lhs, rhs = QuantizedType("int8", (float32(0.02),), (5,)), QuantizedType("int8", (float32(0.03),), (-9,))
    out = QuantizedType("int8", (float32(0.05),), (3,))

    def network(emit: Emit, inputs: list[relax.Var], length: relax.Var | None) -> relax.Var:
        left, right = inputs
        if is_transposed:
            right = emit(relax.op.permute_dims(right, [0, 2, 1]))
        total = emit(ops.matmul(left, right, lhs, rhs, length=None if of_scores else length))
        return emit(ops.requantize(total, QuantizedType("int32", (float32(lhs.scale * rhs.scale),), (0,)), out))

    left, right = ((3, -1, 20), (3, 20, -1)) if of_scores else ((3, -1, -1), (3, -1, 33))
    if is_transposed:
        right = (right[0], right[2], right[1])
    shapes = [(left, "int8"), (right, "int8")]
    assert check_lengths(network, shapes, longest, LENGTHS[longest], target, tmp_path) == ["product"]
