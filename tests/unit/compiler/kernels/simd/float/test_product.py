"""The kernels of float products equal the oracle, bit for bit, on every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import relax

from service.compiler.kernels.choices import Choices
from service.compiler.kernels.libraries import library_for
from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.portable import PortableIsa
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.target import Target, detect_host
from tests.support.bounded import check_lengths, of_lengths
from tests.support.qnn_models import module_of
from tests.support.selected import BFLOAT16, RUNNING, run_selected

HERE = RUNNING
MODE = "onnxruntime"
RNG = np.random.default_rng(0)
Real = NDArray[np.float32]
Shape = tuple[int, ...]
Emit = Callable[[list[relax.Var]], relax.Call]


def real(*shape: int) -> Real:
    return RNG.standard_normal(shape).astype(np.float32)


def check(
    target: Target, shapes: list[Shape], call: Emit, scratch: Path, library: Callable[..., SimdLibrary] | None = None
) -> list[str]:
    """Checks a call against the oracle, and returns the kernels that computed it."""
    module = module_of([(shape, "float32") for shape in shapes], lambda emit, inputs: emit(call(inputs)))
    inputs = [real(*shape) for shape in shapes]
    selection, (actual,) = run_selected(module, target, MODE, inputs, scratch, library)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(MODE), inputs)[0])
    assert selection.plain == []
    return [str(layer["kernel"]) for layer in selection.layers]


# (shape of the rows, number of columns). Some sizes fill tiles, some do not, some are less than a vector, and some are
# 1.
DENSE: list[tuple[Shape, int]] = [
    ((1, 128, 40), 96),
    ((197, 33), 50),
    ((2, 3, 7), 5),
    ((1, 64), 300),
    ((40, 9), 1),
    ((1, 1), 1),
    ((3, 1), 17),
    ((1, 70, 1024), 33),
    ((300, 20), 700),
]


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "columns"), DENSE, ids=str)
def test_rows_times_constant_weights(target: Target, biased: bool, rows: Shape, columns: int, tmp_path: Path) -> None:
    weights, bias = relax.const(real(rows[-1], columns)), relax.const(real(columns)) if biased else None
    check(target, [rows], lambda inputs: ops.real_matmul(inputs[0], weights, bias), tmp_path)


# (shape of the rows, number of columns, block size, bits). Some last blocks are partial, and some blocks end within a
# word.
BLOCKED: list[tuple[Shape, int, int, int]] = [
    ((1, 128), 96, 32, 4),
    ((2, 37, 64), 40, 16, 4),
    ((1, 3, 100), 17, 32, 4),
    ((1, 45), 5, 45, 4),
    ((300, 64), 200, 64, 4),
    ((3, 64), 300, 16, 8),
    ((50, 37), 33, 16, 8),
]


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize(("biased", "points"), [(False, "one"), (True, "many")])
@pytest.mark.parametrize(("rows", "columns", "size", "bits"), BLOCKED, ids=str)
def test_rows_times_weights_in_blocks(
    target: Target, points: str, biased: bool, rows: Shape, columns: int, size: int, bits: int, tmp_path: Path
) -> None:
    stored = RNG.integers(0, 1 << bits, (rows[-1], columns)).astype(np.uint8)
    shape = (-(-rows[-1] // size), columns)
    zeros = np.full(shape, 1 << (bits - 1)) if points == "one" else RNG.integers(0, 1 << bits, shape)
    weights, scales, zero = (relax.const(each) for each in (stored, np.abs(real(*shape)), zeros.astype(np.uint8)))
    bias = relax.const(real(columns)) if biased else None

    def call(inputs: list[relax.Var]) -> relax.Call:
        return ops.block_matmul(inputs[0], weights, scales, zero, bias, block_size=size, bits=bits)

    assert check(target, [rows], call, tmp_path) == ["float_product"]


# (shape of the left operand, shape of the right operand): a batch; batches that are broadcast on one side or on both
# sides; one matrix for all; one tile of rows.
COMPUTED: list[tuple[Shape, Shape]] = [
    ((2, 3, 31, 20), (2, 3, 20, 37)),
    ((4, 1, 19, 8), (1, 5, 8, 16)),
    ((3, 19, 8), (2, 3, 8, 40)),
    ((2, 3, 19, 8), (8, 24)),
    ((1, 4, 3, 16), (1, 4, 16, 64)),
    ((1, 4, 3, 16), (1, 4, 16, 3)),
    ((5, 40, 6), (5, 6, 9)),
    ((1, 300, 1000), (1, 1000, 9)),
]


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize(("lhs", "rhs"), COMPUTED, ids=str)
def test_two_computed_matrices(target: Target, lhs: Shape, rhs: Shape, tmp_path: Path) -> None:
    check(target, [lhs, rhs], lambda inputs: ops.real_matmul(*inputs), tmp_path)


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_constant_matrices_of_a_batch(target: Target, tmp_path: Path) -> None:
    weights, bias = relax.const(real(3, 8, 40)), relax.const(real(40))
    check(target, [(2, 1, 19, 8)], lambda inputs: ops.real_matmul(inputs[0], weights, bias), tmp_path)


# (source, filters, strides, padding, dilation, groups).
CONVOLUTIONS: list[tuple[Shape, Shape, Shape, Shape, Shape, int]] = [
    ((1, 14, 13, 16), (40, 3, 3, 16), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((2, 9, 10, 3), (20, 3, 3, 3), (2, 2), (0, 1, 2, 0), (1, 1), 1),
    ((2, 7, 5, 24), (33, 1, 1, 24), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 9, 9, 8), (16, 1, 1, 8), (2, 2), (0, 0, 0, 0), (1, 1), 1),
    ((1, 12, 11, 8), (24, 3, 2, 4), (1, 2), (2, 0, 1, 1), (2, 3), 2),
    ((2, 6, 7, 12), (36, 1, 1, 4), (1, 1), (0, 0, 0, 0), (1, 1), 3),
    ((1, 4, 4, 5), (7, 4, 4, 5), (1, 1), (0, 0, 0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(target: Target, case: tuple[Shape, Shape, Shape, Shape, Shape, int], tmp_path: Path) -> None:
    shape, kernel, strides, padding, dilation, groups = case
    weights, bias = relax.const(real(*kernel)), relax.const(real(kernel[0]))

    def call(inputs: list[relax.Var]) -> relax.Call:
        return ops.real_conv2d(
            inputs[0], weights, bias, strides=strides, padding=padding, dilation=dilation, groups=groups
        )

    check(target, [shape], call, tmp_path)


# (source, kernel size, strides, padding, dilation, selected kernel). Channels fill vectors or do not; some images have
# few pixels, and some kernels many taps.
DEPTHWISE: list[tuple[Shape, Shape, Shape, Shape, Shape, str]] = [
    ((1, 14, 13, 32), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float_depthwise"),
    ((2, 9, 33, 19), (5, 5), (2, 2), (2, 1, 2, 2), (1, 1), "float_depthwise"),
    ((1, 7, 7, 40), (7, 7), (1, 1), (3, 3, 3, 3), (1, 1), "float_depthwise"),
    ((1, 12, 3, 16), (3, 2), (1, 1), (0, 1, 0, 0), (2, 2), "float_depthwise"),
    ((1, 5, 6, 3), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float_product"),
    ((1, 3, 64, 16), (1, 31), (1, 1), (0, 15, 0, 15), (1, 1), "float_product"),
]


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise_convolutions(
    target: Target, case: tuple[Shape, Shape, Shape, Shape, Shape, str], tmp_path: Path
) -> None:
    shape, kernel, strides, padding, dilation, kind = case
    weights, bias = relax.const(real(shape[3], *kernel, 1)), relax.const(real(shape[3]))

    def call(inputs: list[relax.Var]) -> relax.Call:
        return ops.real_conv2d(
            inputs[0], weights, bias, strides=strides, padding=padding, dilation=dilation, groups=shape[3]
        )

    assert check(target, [shape], call, tmp_path) == [kind]


@pytest.mark.parametrize("target", HERE[:1], ids=str)
@pytest.mark.parametrize("rank", [1, 5, 20])
def test_every_tile_gives_the_same_sums(target: Target, rank: int, tmp_path: Path) -> None:
    weights = relax.const(real(40, 96))
    check(
        target,
        [(37, 40)],
        lambda inputs: ops.real_matmul(inputs[0], weights),
        tmp_path,
        lambda mode: library_for(target, mode, Choices(rank=rank)),  # type: ignore[arg-type, return-value]
    )


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_the_kernel_runs_on_the_portable_instruction_set(target: Target, tmp_path: Path) -> None:
    check(
        target,
        [(2, 11, 6), (2, 6, 9)],
        lambda inputs: ops.real_matmul(*inputs),
        tmp_path,
        lambda mode: SimdLibrary(PortableIsa(), mode),
    )


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_subnormal_sums_are_kept(target: Target, tmp_path: Path) -> None:
    weights, rows = relax.const(real(30, 20) * np.float32(1e-20)), real(3, 30) * np.float32(1e-21)
    module = module_of([((3, 30), "float32")], lambda emit, inputs: emit(ops.real_matmul(inputs[0], weights)))
    _, (actual,) = run_selected(module, target, MODE, [rows], tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(MODE), [rows])[0])
    assert (np.abs(actual) < np.finfo(np.float32).tiny).all()
    assert actual.any()


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_infinities_and_nan_are_computed_as_by_the_oracle(target: Target, tmp_path: Path) -> None:
    weights, rows = relax.const(real(5, 20)), real(3, 5)
    rows[0, 0], rows[1, 1] = np.inf, np.nan
    module = module_of([((3, 5), "float32")], lambda emit, inputs: emit(ops.real_matmul(inputs[0], weights)))
    _, (actual,) = run_selected(module, target, MODE, [rows], tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(MODE), [rows])[0])
    assert np.isfinite(actual[2]).all()
    assert np.isnan(actual[1]).all()


def heads(emit: Callable[[relax.Expr], relax.Var], x: relax.Var, count: int, axes: tuple[int, ...]) -> relax.Var:
    """Splits `[N, T, C]` into heads: `[N, heads, T, C / heads]` if `axes` is (0, 2, 1, 3)."""
    n, tokens, channels = (int(dim) for dim in x.ty.shape)
    apart = emit(relax.op.reshape(x, (n, tokens, count, channels // count)))
    return emit(relax.op.permute_dims(apart, axes))


# (tokens, channels, heads). Some sizes fill vectors, some do not, and some are less than a vector.
ATTENTION = [(24, 64, 2), (37, 40, 2), (50, 96, 3), (5, 24, 2), (70, 12, 4)]


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize(("tokens", "channels", "count"), ATTENTION, ids=str)
def test_heads_are_read_and_written_without_copies(
    target: Target, tokens: int, channels: int, count: int, tmp_path: Path
) -> None:
    shape = (2, tokens, channels)

    def body(emit: Callable[[relax.Expr], relax.Var], inputs: list[relax.Var]) -> relax.Var:
        query, value = (heads(emit, inputs[position], count, (0, 2, 1, 3)) for position in (0, 2))
        key = heads(emit, inputs[1], count, (0, 2, 3, 1))
        scores = emit(ops.real_matmul(query, key))
        made = emit(ops.real_matmul(scores, value))
        return emit(relax.op.reshape(emit(relax.op.permute_dims(made, (0, 2, 1, 3))), shape))

    module, inputs = module_of([(shape, "float32")] * 3, body), [real(*shape) for _ in range(3)]
    selection, (actual,) = run_selected(module, target, MODE, inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(MODE), inputs)[0])
    assert [layer["kernel"] for layer in selection.layers] == ["float_product", "float_product"]
    assert selection.plain == []


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_slices_of_one_tensor_are_multiplied(target: Target, tmp_path: Path) -> None:
    def body(emit: Callable[[relax.Expr], relax.Var], inputs: list[relax.Var]) -> relax.Var:
        parts = [emit(relax.op.strided_slice(inputs[0], [2], [32 * at], [32 * at + 32])) for at in range(2)]
        return emit(ops.real_matmul(heads(emit, parts[0], 2, (0, 2, 1, 3)), heads(emit, parts[1], 2, (0, 2, 3, 1))))

    module, inputs = module_of([((1, 21, 64), "float32")], body), [real(1, 21, 64)]
    selection, (actual,) = run_selected(module, target, MODE, inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(MODE), inputs)[0])
    assert selection.plain == []


# --- bfloat16, on a target that has an instruction for it, and on other targets without the instruction.

_WITHOUT = [target for target in HERE if target.name == "x86-64-v3" or target.architecture != "x86_64"]
_SKIPPED = pytest.mark.skipif(
    not BFLOAT16.runs_on(detect_host()),
    reason=f"no emulator has AVX-512, and this CPU lacks {', '.join(BFLOAT16.missing_on(detect_host()))}",
)
PAIRED = [pytest.param(BFLOAT16, marks=_SKIPPED), *_WITHOUT]


def rough(*shape: int) -> Real:
    """Returns values of all magnitudes, so that some operands and some partial sums are subnormal."""
    return (real(*shape) * np.exp2(RNG.integers(-72, 8, shape))).astype(np.float32)


@pytest.mark.parametrize("target", PAIRED, ids=str)
@pytest.mark.parametrize(("rows", "columns"), DENSE, ids=str)
def test_rows_times_constant_weights_in_bfloat16(target: Target, rows: Shape, columns: int, tmp_path: Path) -> None:
    weights, bias = relax.const(real(rows[-1], columns)), relax.const(real(columns))
    check(target, [rows], lambda x: ops.real_matmul(x[0], weights, bias, operand_dtype="bfloat16"), tmp_path)


@pytest.mark.parametrize("target", PAIRED, ids=str)
@pytest.mark.parametrize(("lhs", "rhs"), [*COMPUTED, ((2, 37, 64), (2, 64, 48))], ids=str)
def test_two_computed_matrices_in_bfloat16(target: Target, lhs: Shape, rhs: Shape, tmp_path: Path) -> None:
    check(target, [lhs, rhs], lambda inputs: ops.real_matmul(*inputs, operand_dtype="bfloat16"), tmp_path)


@pytest.mark.parametrize("target", PAIRED, ids=str)
@pytest.mark.parametrize("case", [*CONVOLUTIONS, ((1, 6, 7, 16), (16, 3, 3, 1), (1, 1), (1,) * 4, (1, 1), 16)], ids=str)
def test_convolutions_in_bfloat16(
    target: Target, case: tuple[Shape, Shape, Shape, Shape, Shape, int], tmp_path: Path
) -> None:
    shape, kernel, strides, padding, dilation, groups = case
    weights, bias = relax.const(real(*kernel)), relax.const(real(kernel[0]))
    window = {"strides": strides, "padding": padding, "dilation": dilation}

    def call(inputs: list[relax.Var]) -> relax.Call:
        return ops.real_conv2d(inputs[0], weights, bias, **window, groups=groups, operand_dtype="bfloat16")

    assert check(target, [shape], call, tmp_path) == ["float_product"]


@pytest.mark.parametrize("target", PAIRED, ids=str)
@pytest.mark.parametrize(("tokens", "channels", "count"), ATTENTION, ids=str)
def test_heads_are_multiplied_in_bfloat16(
    target: Target, tokens: int, channels: int, count: int, tmp_path: Path
) -> None:
    def call(emit: Callable[[relax.Expr], relax.Var], inputs: list[relax.Var]) -> relax.Var:
        query, key = heads(emit, inputs[0], count, (0, 2, 1, 3)), heads(emit, inputs[1], count, (0, 2, 3, 1))
        return emit(ops.real_matmul(query, key, operand_dtype="bfloat16"))

    shape = (2, tokens, channels)
    module, inputs = module_of([(shape, "float32")] * 2, call), [real(*shape) for _ in range(2)]
    selection, (actual,) = run_selected(module, target, MODE, inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(MODE), inputs)[0])
    assert selection.plain == []


@pytest.mark.parametrize("target", PAIRED, ids=str)
def test_bfloat16_products_flush_subnormal_numbers(target: Target, tmp_path: Path) -> None:
    weights, rows = relax.const(rough(41, 33)), rough(40, 41)
    rows[0], rows[1, 3], rows[2, 5], rows[3] = 1e-40, np.inf, np.nan, 0.0
    module = module_of(
        [(rows.shape, "float32")], lambda emit, x: emit(ops.real_matmul(x[0], weights, operand_dtype="bfloat16"))
    )
    _, (actual,) = run_selected(module, target, MODE, [rows], tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode(MODE), [rows])[0])
    small = np.abs(actual[np.isfinite(actual)])
    assert not ((small > 0) & (small < np.finfo(np.float32).tiny)).any()
    assert (actual[[0, 3]] == 0).all()
    assert np.isnan(actual[2]).all()


LENGTHS = {19: range(1, 20), 5: range(1, 6), 37: (37, 1, 2, 3, 15, 16, 17, 35, 36), 64: (64, 1, 4, 31, 32, 33, 63)}


@pytest.mark.parametrize(("target", "longest"), of_lengths(LENGTHS, BFLOAT16))
@pytest.mark.parametrize("is_transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("of_scores", [False, True], ids=["depth", "columns"])
def test_positions_beyond_the_length_have_no_effect(
    of_scores: bool, is_transposed: bool, longest: int, target: Target, tmp_path: Path
) -> None:
    """`[…, length, length] x [length, N]`, or `[length, K] x [K, length]`."""
    operand_dtype = "bfloat16" if target == BFLOAT16 else "float32"

    def network(emit: Callable[..., relax.Var], inputs: list[relax.Var], length: relax.Var | None) -> relax.Var:
        left, right = inputs
        if is_transposed:
            right = emit(relax.op.permute_dims(right, [0, 2, 1]))
        return emit(ops.real_matmul(left, right, operand_dtype=operand_dtype, length=None if of_scores else length))

    left, right = ((3, -1, 20), (3, 20, -1)) if of_scores else ((3, -1, -1), (3, -1, 33))
    if is_transposed:
        right = (right[0], right[2], right[1])
    shapes = [(left, "float32"), (right, "float32")]
    assert check_lengths(network, shapes, longest, LENGTHS[longest], target, tmp_path) == ["float_product"]
