"""Moving transposes changes where results are computed, but not their values."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.importers.channels_first import filters_channels_last, in_channels_last
from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.transposes import move_transposes
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import LITERT_REFERENCE
from tests.support.examples import examples
from tests.support.qnn_models import Emit, float32, module_of, u8

MODE = get_mode(LITERT_REFERENCE)
TYPE = u8(0.05, 120)
rng = np.random.default_rng(7)


def operators(module: tvm.IRModule) -> Counter[str]:
    return Counter(
        value.op.name.removeprefix("relax.")
        for _, value in graph.bindings(graph.main_of(module))
        if hasattr(value, "op")
    )


def check(module: tvm.IRModule) -> Counter[str]:
    """Checks that the module gives the same outputs after the pass, and returns its operators."""
    moved = move_transposes(module)
    shapes = [(graph.shape_of(param), str(param.ty.dtype)) for param in graph.main_of(module).params]
    inputs = [rng.integers(0, 256, shape).astype(dtype) for shape, dtype in shapes]
    for before, after in zip(oracle.run(module, MODE, inputs), oracle.run(moved, MODE, inputs), strict=True):
        np.testing.assert_array_equal(before, after)
    return operators(moved)


def convolved(emit: Emit, x: relax.Var, filters: int, kernel: int = 3) -> relax.Var:
    channels, padding = graph.shape_of(x)[1], kernel // 2
    weight_type = QuantizedType("int8", tuple(float32(0.01 * (i + 1)) for i in range(filters)), axis=0)
    weights = filters_channels_last(rng.integers(-127, 128, (filters, channels, kernel, kernel)).astype(np.int8))

    def body(image: relax.Var) -> relax.Call:
        call = ops.conv2d(image, relax.const(weights), None, TYPE, weight_type, padding=[padding] * 4)
        return ops.requantize(emit(call), accumulator_type(TYPE, weight_type, axis=3), TYPE)

    return in_channels_last(emit, x, body)


def pooled(emit: Emit, x: relax.Var) -> relax.Var:
    return in_channels_last(emit, x, lambda image: ops.max_pool2d(image, TYPE, TYPE, pool_size=(2, 2), strides=(2, 2)))


def test_a_network_of_convolutions_keeps_one_permutation_at_its_input() -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = pooled(emit, convolved(emit, inputs[0], 8))
        x = emit(ops.add(convolved(emit, x, 8), x, TYPE, TYPE, TYPE))
        x = emit(ops.concatenate([x, convolved(emit, x, 4, 1)], [TYPE, TYPE], TYPE, axis=1))
        x = emit(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 1, 0, 2], pad_value=120))
        x = emit(
            ops.mean(emit(ops.requantize(convolved(emit, x, 6), TYPE, TYPE)), TYPE, TYPE, axes=[2, 3], keepdims=True)
        )
        return emit(relax.op.reshape(x, [1, 6]))

    left = check(module_of([((1, 3, 12, 10), "uint8")], network))
    assert left["permute_dims"] == 1


def test_an_image_that_is_returned_is_permuted_once_more() -> None:
    left = check(module_of([((2, 3, 6, 8), "uint8")], lambda emit, x: pooled(emit, convolved(emit, x[0], 5))))
    assert left["permute_dims"] == 2


def test_several_readers_share_one_permutation() -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        first, second = convolved(emit, inputs[0], 4), convolved(emit, inputs[0], 4)
        return emit(ops.mul(first, second, TYPE, TYPE, TYPE))

    assert check(module_of([((1, 3, 5, 5), "uint8")], network))["permute_dims"] == 2


def test_axes_of_length_1_are_moved_by_a_reshape() -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        gate = convolved(emit, emit(ops.mean(inputs[0], TYPE, TYPE, axes=[2, 3], keepdims=True)), 3, 1)
        return emit(ops.mul(inputs[0], gate, TYPE, TYPE, TYPE))

    assert check(module_of([((1, 3, 5, 5), "uint8")], network))["permute_dims"] == 0


def test_channels_are_sliced_without_a_permutation() -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = convolved(emit, inputs[0], 8)
        halves = [emit(relax.op.strided_slice(x, [1], [begin], [begin + 4], [1])) for begin in (0, 4)]
        return emit(ops.add(convolved(emit, halves[0], 4), halves[1], TYPE, TYPE, TYPE))

    assert check(module_of([((2, 3, 5, 6), "uint8")], network))["permute_dims"] == 2


def test_a_value_computed_from_constants_is_permuted_instead_of_the_image() -> None:
    """YOLOS resizes its position embedding, which is constant, in this way."""

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        table = relax.const(np.arange(48, dtype=np.uint8).reshape(1, 8, 6))
        positions = emit(relax.op.permute_dims(emit(ops.requantize(table, TYPE, u8(0.02))), [0, 2, 1]))
        x = emit(ops.add(inputs[0], positions, TYPE, u8(0.02), TYPE))
        return emit(ops.softmax(x, TYPE, QuantizedType("uint8", (1 / 256,))))

    module = module_of([((2, 6, 8), "uint8")], network)
    check(module)
    calls = [value for _, value in graph.bindings(graph.main_of(move_transposes(module)))]
    (permuted,) = (call for call in calls if getattr(getattr(call, "op", None), "name", "") == "relax.permute_dims")
    assert graph.shape_of(permuted) == (1, 6, 8)


def test_a_channel_shuffle_stays_in_channels_last() -> None:
    """A reshape, a transpose and a reshape of the channels become one permutation of the channels. Two other
    permutations remain, one at each end of the model.
    """

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = emit(relax.op.reshape(convolved(emit, inputs[0], 8), [2, 2, 4, 5, 6]))
        x = emit(relax.op.permute_dims(x, [0, 2, 1, 3, 4]))
        return convolved(emit, emit(relax.op.reshape(x, [2, 8, 5, 6])), 4)

    assert check(module_of([((2, 3, 5, 6), "uint8")], network))["permute_dims"] == 3


def test_scales_of_an_axis_move_with_the_axis() -> None:
    quantized = QuantizedType("uint8", tuple(float32(0.1 * (i + 1)) for i in range(3)), (1, 2, 3), axis=1)

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        image = emit(relax.op.permute_dims(inputs[0], [0, 3, 1, 2]))
        return emit(relax.op.permute_dims(emit(ops.dequantize(image, quantized)), [0, 2, 3, 1]))

    assert check(module_of([((1, 4, 5, 3), "uint8")], network)) == Counter({"qnn.dequantize": 1})


def test_blocks_of_scales_do_not_move() -> None:
    scales = tuple(float32(0.1 * (i + 1)) for i in range(2))
    quantized = QuantizedType("uint8", scales, blocks=((1, 2),), grid=(1, 2, 1, 1))

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.dequantize(emit(relax.op.permute_dims(inputs[0], [0, 3, 1, 2])), quantized))

    assert check(module_of([((1, 3, 5, 4), "uint8")], network))["permute_dims"] == 1


def test_constants_are_permuted_at_compile_time() -> None:
    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        shift = relax.const(rng.integers(0, 256, (4, 1, 1)).astype(np.uint8))
        x = emit(ops.add(convolved(emit, inputs[0], 4), shift, TYPE, TYPE, TYPE))
        return convolved(emit, x, 2)

    left = check(module_of([((1, 3, 5, 5), "uint8")], network))
    assert left["permute_dims"] == 2
    assert left["reshape"] == 0


Step = Callable[[Emit, relax.Var, np.random.Generator], relax.Var]
STEPS: list[Step] = []


def step(function: Step) -> Step:
    STEPS.append(function)
    return function


@step
def permuted(emit: Emit, x: relax.Var, draw: np.random.Generator) -> relax.Var:
    return emit(relax.op.permute_dims(x, [int(axis) for axis in draw.permutation(len(graph.shape_of(x)))]))


@step
def reshaped(emit: Emit, x: relax.Var, draw: np.random.Generator) -> relax.Var:
    shape: list[int] = []
    total = math.prod(graph.shape_of(x))
    while total > 1 and len(shape) < 5:
        shape.append(int(draw.choice([d for d in range(1, total + 1) if total % d == 0])))
        total //= shape[-1]
    return emit(relax.op.reshape(x, [*shape, total]))


@step
def added(emit: Emit, x: relax.Var, draw: np.random.Generator) -> relax.Var:
    shape = [int(draw.choice([1, size])) for size in graph.shape_of(x)][int(draw.integers(0, 2)) :]
    other = relax.const(draw.integers(0, 256, shape).astype(np.uint8))
    pair = (x, other) if draw.integers(0, 2) else (other, x)
    return emit(ops.add(*pair, TYPE, u8(0.03, 7), TYPE))


@step
def doubled(emit: Emit, x: relax.Var, draw: np.random.Generator) -> relax.Var:
    axis = int(draw.integers(0, len(graph.shape_of(x))))
    return emit(ops.concatenate([x, emit(ops.requantize(x, u8(0.02), TYPE))], [TYPE, TYPE], TYPE, axis=axis))


@step
def averaged(emit: Emit, x: relax.Var, draw: np.random.Generator) -> relax.Var:
    axis, rank = int(draw.integers(0, len(graph.shape_of(x)))), len(graph.shape_of(x))
    return emit(ops.mean(x, TYPE, TYPE, axes=[axis], keepdims=rank == 1 or bool(draw.integers(0, 2))))


@step
def padded(emit: Emit, x: relax.Var, draw: np.random.Generator) -> relax.Var:
    return emit(relax.op.nn.pad(x, [int(n) for n in draw.integers(0, 2, 2 * len(graph.shape_of(x)))], pad_value=9))


@step
def cut(emit: Emit, x: relax.Var, draw: np.random.Generator) -> relax.Var:
    axis = int(draw.integers(0, len(graph.shape_of(x))))
    size = graph.shape_of(x)[axis]
    begin, step = int(draw.integers(0, size)), int(draw.integers(1, 3))
    return emit(relax.op.strided_slice(x, [axis], [begin], [int(draw.integers(begin + 1, size + 1))], [step]))


@step
def softened(emit: Emit, x: relax.Var, draw: np.random.Generator) -> relax.Var:
    return emit(ops.softmax(x, TYPE, QuantizedType("uint8", (1 / 256,))))


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 1 << 30))
def test_any_model_gives_the_same_outputs(seed: int) -> None:
    draw = np.random.default_rng(seed)

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = inputs[0]
        for _ in range(int(draw.integers(2, 9))):
            if math.prod(graph.shape_of(x)) < 4000:
                x = STEPS[int(draw.integers(0, len(STEPS)))](emit, x, draw)
            x = permuted(emit, x, draw)
        return x

    check(module_of([((2, 3, 4, 5), "uint8")], network))


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_every_permutation_and_its_inverse_are_removed(axes: tuple[int, ...]) -> None:
    back = [int(axis) for axis in np.argsort(axes)]

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = emit(ops.requantize(emit(relax.op.permute_dims(inputs[0], axes)), TYPE, u8(0.1, 3)))
        return emit(relax.op.permute_dims(x, back))

    assert check(module_of([((2, 3, 4), "uint8")], network))["permute_dims"] == 0


def test_operands_that_broadcast_are_not_repeated_first() -> None:
    """XCiT divides its queries by their norms. Its exporter repeats the norms for every token."""

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        tokens = emit(relax.op.permute_dims(emit(ops.dequantize(inputs[0], TYPE)), (0, 2, 3, 1)))
        norm = emit(relax.op.max(tokens, axis=[3], keepdims=True))
        norms = emit(relax.op.broadcast_to(norm, graph.shape_of(tokens)))
        return emit(ops.quantize(emit(relax.op.divide(tokens, norms)), TYPE))

    found = check(module_of([((1, 20, 3, 4), "uint8")], body))
    assert found["permute_dims"] == 2, "one for the maximum, whose axes are given, and one at the end"
