"""Generated sums of real values equal the oracle's in each order. Additions are not reordered or fused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.lowering.codegen import FUSE
from service.compiler.lowering.schedule import schedule
from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.ops.real import FOURS, LANES, PACKETS, SEQUENTIAL
from service.compiler.qnn.transposes import move_transposes
from service.compiler.targets import codegen_target
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import detect_host
from tests.support.qnn_models import Emit, compile_and_run, module_of, u8

MODE, IN = get_mode(ONNXRUNTIME), u8(0.0371, 3)


def summed(shape: tuple[int, ...], axes: tuple[int, ...], order: str) -> tvm.IRModule:
    """Returns a module that sums dequantized values."""
    rows = math.prod(extent for axis, extent in enumerate(shape) if axis not in axes)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        reals = emit(ops.dequantize(inputs[0], IN))
        return emit(ops.real_sum(reals, axes=axes, order=order, rows=rows))

    return module_of([(shape, "uint8")], body)


def run(module: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    target = codegen_target(detect_host().target)
    llvm = tvm.target.Target(dict(target.llvm))
    with llvm:
        scheduled = schedule(tvm.transform.Sequential(list(FUSE))(canonicalize(module, MODE)), target)
        return compile_and_run(scheduled, [x], llvm)


def stored(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "axes", "order"),
    [
        ((1, 20, 20, 48), (1, 2), SEQUENTIAL),
        ((3, 5, 7, 9), (0, 2), SEQUENTIAL),
        ((5, 1), (0,), SEQUENTIAL),
        *(((3, length, 40), (1,), FOURS) for length in (1, 2, 3, 4, 6, 7, 49)),
        *(((1, 10, length), (2,), PACKETS) for length in (1, 3, 4, 5, 8, 11, 12, 17)),
        ((1, 24, 28, 28), (2, 3), PACKETS),
        ((2, 33, 7, 7), (2, 3), PACKETS),
        ((37, 41), (0, 1), PACKETS),
        *(((1, 10, length), (2,), LANES) for length in (1, 3, 15, 16, 17, 40, 197)),
        ((300,), (0,), LANES),
    ],
)
def test_compiled_sums_equal_the_oracle(shape: tuple[int, ...], axes: tuple[int, ...], order: str) -> None:
    module, x = summed(shape, axes, order), stored(shape)
    (expected,) = oracle.run(module, MODE, [x])
    np.testing.assert_array_equal(run(module, x), expected)


def test_lanes_are_folded_by_halves_and_then_by_neighbours() -> None:
    """Compares the oracle with a sum that the test computes one number at a time."""
    x = np.random.default_rng(0).normal(0, 1, 45).astype(np.float32)
    sums = [np.float32(0)] * 16
    for index, term in enumerate(x):
        sums[index % 16] += term
    sums = [sums[index] + sums[index + 8] for index in range(8)]
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    module = module_of(
        [(x.shape, "float32")], lambda emit, inputs: emit(ops.real_sum(inputs[0], axes=(0,), order=LANES))
    )
    assert oracle.run(module, MODE, [x])[0].tobytes() == sums[0].tobytes()


def test_lanes_are_along_the_last_axis() -> None:
    with pytest.raises(IllTyped, match="lanes"):
        summed((2, 3, 4), (1,), LANES)


@pytest.mark.parametrize("shape", [(1, 33, 7, 7), (1, 9, 5, 5)])
def test_every_sample_of_a_batch_has_the_sum_that_it_has_alone(shape: tuple[int, ...]) -> None:
    """The rows of a sample have other addresses in a batch, but their sums are the same."""
    x = stored((3, *shape[1:]))
    rows = shape[1]

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.real_sum(emit(ops.dequantize(inputs[0], IN)), axes=(2, 3), order=PACKETS, rows=rows))

    module = module_of([(x.shape, "uint8")], body)
    alone = [oracle.run(summed(shape, (2, 3), PACKETS), MODE, [part[np.newaxis]])[0] for part in x]
    np.testing.assert_array_equal(oracle.run(module, MODE, [x])[0], np.concatenate(alone))
    np.testing.assert_array_equal(run(module, x), np.concatenate(alone))


@pytest.mark.parametrize("axes", [(0, 3, 1, 2), (0, 2, 1, 3)])
def test_sums_move_before_transposes_that_keep_rows(axes: tuple[int, ...]) -> None:
    """A sum of the order LANES is moved before a transpose only if the elements of each row stay contiguous."""

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        reals = emit(ops.dequantize(emit(relax.op.permute_dims(inputs[0], list(axes))), IN))
        return emit(ops.real_sum(reals, axes=(3,), order=LANES))

    module, x = module_of([((2, 5, 6, 20), "uint8")], body), stored((2, 5, 6, 20))
    moved = move_transposes(module)
    names = [value.op.name for _, value in graph.bindings(graph.main_of(moved)) if isinstance(value, relax.Call)]
    assert names.index("relax.qnn.real_sum") < names.index("relax.permute_dims") or axes[-1] != 3
    (expected,) = oracle.run(module, MODE, [x])
    np.testing.assert_array_equal(run(moved, x), expected)


@pytest.mark.parametrize(("order", "permutations"), [(SEQUENTIAL, 0), (PACKETS, 1)])
def test_a_channels_last_image_is_summed_in_place_if_the_order_allows_it(order: str, permutations: int) -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        reals = emit(ops.dequantize(emit(relax.op.permute_dims(inputs[0], [0, 3, 1, 2])), IN))
        return emit(ops.real_sum(reals, axes=(2, 3), order=order, rows=6))

    module, x = module_of([((1, 9, 5, 6), "uint8")], body), stored((1, 9, 5, 6))
    moved = move_transposes(module)
    names = [value.op.name for _, value in graph.bindings(graph.main_of(moved)) if isinstance(value, relax.Call)]
    assert names.count("relax.permute_dims") == permutations
    (expected,) = oracle.run(module, MODE, [x])
    np.testing.assert_array_equal(run(moved, x), expected)


@pytest.mark.parametrize("length", [1, 4, 7, 8, 12, 15, 16, 29, 192])
def test_compiled_moments_equal_the_oracle(length: int) -> None:
    """The moments are the mean, the sum of squares, and a product that is fused with the sum of the two."""

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        (x,) = inputs
        return emit(ops.real_fma(x, emit(ops.real_mean(x)), emit(ops.real_squares(x))))

    x = np.random.default_rng(length).normal(1, 2, (3, 11, length)).astype(np.float32)
    module = module_of([(x.shape, "float32")], body)
    np.testing.assert_array_equal(run(module, x), oracle.run(module, MODE, [x])[0])


@pytest.mark.parametrize("length", [3, 8, 11, 12, 15, 16, 45])
def test_squares_are_added_to_eight_sums(length: int) -> None:
    """Compares the oracle with a sum that the test computes one number at a time."""
    x = np.random.default_rng(0).normal(0, 1, length).astype(np.float32)
    whole, sums = length // 8 * 8, [np.asarray(0, np.float32)] * 8
    for position in range(whole):
        sums[position % 8] = fma(x[position], x[position], sums[position % 8])
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [low + high for low, high in zip(sums[:half], sums[half:], strict=True)]
    rest = list(x[whole:])
    quad = rest[:4] if len(rest) >= 4 else []
    for element in quad:
        sums = [sums[0] + element * element]
    for element in rest[len(quad) :]:
        sums = [fma(element, element, sums[0])]
    module = module_of([(x.shape, "float32")], lambda emit, inputs: emit(ops.real_squares(inputs[0])))
    assert oracle.run(module, MODE, [x])[0].tobytes() == sums[0].tobytes()


def test_operands_of_a_fused_addition_broadcast() -> None:
    def joined(*shapes: tuple[int, ...]) -> tuple[int, ...]:
        module = module_of([(shape, "float32") for shape in shapes], lambda emit, inputs: emit(ops.real_fma(*inputs)))
        return tuple(int(extent) for extent in graph.main_of(module).ret_ty.shape)

    assert joined((3, 1), (4,), (2, 3, 4)) == (2, 3, 4)
    with pytest.raises(IllTyped, match="do not broadcast"):
        joined((3, 2), (3,), (1,))
