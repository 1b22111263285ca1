"""Each operator computes the positions of the input as a model of that length does, whatever is beyond them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.lengths.bind import Unbound, bind_length
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.real import FOURS, LANES, SEQUENTIAL
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from tests.support.qnn_models import Emit, i8, module_of

MODE = get_mode(ONNXRUNTIME)
LONGEST = 21
INT8 = i8(0.5, 3)

Network = Callable[[Emit, list[relax.Var], int], relax.Var]
# The shape of each input; -1 is the length.
Shapes = Sequence[tuple[tuple[int, ...], str]]


def _module(network: Network, shapes: Shapes, length: int) -> tvm.IRModule:
    def build(emit: Emit, inputs: list[relax.Var]) -> list[relax.Var]:
        return [network(emit, inputs, length)]

    return module_of([(_at(shape, length), dtype) for shape, dtype in shapes], build)


def _at(shape: tuple[int, ...], length: int) -> tuple[int, ...]:
    return tuple(length if extent < 0 else extent for extent in shape)


def _poisoned(x: Array, shape: tuple[int, ...]) -> Array:
    """Returns `x` at the beginning of an array of `shape`, whose other elements would change most results."""
    worst = np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    whole = np.full(shape, worst, x.dtype)
    whole[tuple(map(slice, x.shape))] = x
    return whole


def _check(network: Network, shapes: Shapes) -> None:
    bound = bind_length(_module(network, shapes, LONGEST), _module(network, shapes, LONGEST - 4), MODE)
    rng = np.random.default_rng(0)
    for length in (1, 2, 7, 16, 20, LONGEST):
        inputs: list[Array] = [
            rng.normal(0, 3, _at(shape, length)).astype(dtype)
            if dtype.startswith("float")
            else rng.integers(-100, 100, _at(shape, length)).astype(dtype)
            for shape, dtype in shapes
        ]
        padded = [_poisoned(x, _at(shape, LONGEST)) for x, (shape, _) in zip(inputs, shapes, strict=True)]
        (wanted,) = oracle.run(_module(network, shapes, length), MODE, inputs)
        (found,) = oracle.run(bound, MODE, [*padded, np.array([length], np.int32)])
        np.testing.assert_array_equal(found[tuple(map(slice, wanted.shape))], wanted)


def _softmax(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    (x,) = inputs
    moved = emit(relax.op.subtract(x, emit(relax.op.max(x, axis=[-1], keepdims=True))))
    powers = emit(ops.real_function("exp", moved))
    return emit(relax.op.divide(powers, emit(ops.real_sum(powers, axes=[len(x.ty.shape) - 1], order=LANES))))


def _products(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    queries, keys, values = inputs
    scores = emit(ops.real_matmul(queries, emit(relax.op.permute_dims(keys, [0, 2, 1]))))
    return emit(ops.real_matmul(scores, values))


def _quantized_products(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    scores, values = inputs
    return emit(ops.matmul(scores, values, INT8, INT8))


def _heads(emit: Emit, inputs: list[relax.Var], length: int) -> relax.Var:
    apart = emit(relax.op.reshape(inputs[0], [1, length, 3, 2]))
    return emit(relax.op.permute_dims(apart, [0, 2, 1, 3]))


def _range(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    low, high = (emit(each(inputs[0], axis=[0, 1, 2], keepdims=True)) for each in (relax.op.min, relax.op.max))
    return emit(relax.op.divide(inputs[0], emit(relax.op.subtract(high, low))))


def _softmax_in_8_bits(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    return emit(ops.softmax(inputs[0], i8(0.1, 3), i8(1 / 256, -128)))


def _first(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    return emit(relax.op.take(inputs[0], relax.const(np.array(0)), axis=1))


def _positions(emit: Emit, inputs: list[relax.Var], length: int) -> relax.Var:
    table = relax.const(np.random.default_rng(1).normal(0, 1, (LONGEST, 6)).astype(np.float32)[:length])
    return emit(relax.op.add(inputs[0], table))


def _dense(emit: Emit, inputs: list[relax.Var], length: int) -> relax.Var:
    weights = relax.const(np.random.default_rng(1).integers(-9, 9, (4, 1, 1, 6)).astype(np.int8))
    image = emit(relax.op.reshape(inputs[0], [1, length, 1, 6]))
    return emit(ops.conv2d(image, weights, None, INT8, i8(0.25)))


def _counted(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    return emit(relax.op.sum(inputs[0], axis=[1], keepdims=False))


def _mean(emit: Emit, inputs: list[relax.Var], length: int) -> relax.Var:
    total = emit(ops.real_sum(inputs[0], axes=[1], order=SEQUENTIAL))
    return emit(relax.op.divide(total, relax.const(float(length), "float32")))


ROWS = [((1, -1, 6), "float32")]


@pytest.mark.parametrize(
    ("network", "shapes"),
    [
        pytest.param(_softmax, [((1, 3, -1, -1), "float32")], id="softmax"),
        pytest.param(_softmax_in_8_bits, [((1, 3, -1, -1), "int8")], id="8-bit softmax"),
        pytest.param(_products, [((2, -1, 5), "float32")] * 3, id="attention"),
        pytest.param(_quantized_products, [((2, 4, -1), "int8"), ((2, -1, 5), "int8")], id="matmul"),
        pytest.param(_heads, ROWS, id="heads"),
        pytest.param(_range, ROWS, id="range"),
        pytest.param(_first, ROWS, id="first token"),
        pytest.param(_positions, ROWS, id="positions"),
        pytest.param(_dense, [((1, -1, 6), "int8")], id="dense"),
        pytest.param(_mean, ROWS, id="mean"),
        pytest.param(_counted, [((1, -1), "int32")], id="integer sum"),
    ],
)
def test_positions_beyond_the_length_have_no_effect(network: Network, shapes: Shapes) -> None:
    _check(network, shapes)


def _sum_in(order: str, axis: int) -> Network:
    return lambda emit, inputs, _length: emit(ops.real_sum(inputs[0], axes=[axis], order=order))


def test_sums_in_an_order_that_zeros_do_not_change() -> None:
    _check(_sum_in(SEQUENTIAL, 1), ROWS)
    _check(_sum_in(LANES, 2), [((1, 6, -1), "float32")])


def _last(emit: Emit, inputs: list[relax.Var], length: int) -> relax.Var:
    return emit(relax.op.take(inputs[0], relax.const(np.array(length - 1)), axis=1))


def _flattened(emit: Emit, inputs: list[relax.Var], length: int) -> relax.Var:
    return emit(relax.op.reshape(inputs[0], [1, length * 6]))


def _behind(emit: Emit, inputs: list[relax.Var], length: int) -> relax.Var:
    """Moves the length behind another axis without moving the elements."""
    return emit(relax.op.reshape(inputs[0], [1, 6, length]))


def _reversed(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    return emit(relax.op.flip(inputs[0], 1))


def _join_twice(emit: Emit, inputs: list[relax.Var], _length: int) -> relax.Var:
    return emit(relax.op.concat([inputs[0], inputs[0]], axis=1))


def _window(emit: Emit, inputs: list[relax.Var], length: int) -> relax.Var:
    weights = relax.const(np.ones((4, 3, 1, 6), np.float32))
    image = emit(relax.op.reshape(inputs[0], [1, length, 1, 6]))
    return emit(ops.real_conv2d(image, weights, None, padding=(1, 0, 1, 0)))


@pytest.mark.parametrize(
    ("network", "why"),
    [
        pytest.param(_sum_in(FOURS, 1), "operator 'qnn.real_sum' works along the length", id="sum in fours"),
        pytest.param(_last, "numbers that depend on the length", id="last token"),
        pytest.param(_flattened, "is not as long as the input", id="flattened"),
        pytest.param(_behind, "operator 'reshape' works along the length", id="reshape"),
        pytest.param(_reversed, "operator 'flip' works along the length", id="flip"),
        pytest.param(_join_twice, "is not as long as the input", id="concatenation"),
        pytest.param(_window, "operator 'qnn.real_conv2d' works along the length", id="convolution"),
    ],
)
def test_an_operator_that_depends_on_the_number_of_positions_is_refused(network: Network, why: str) -> None:
    with pytest.raises(Unbound, match=why):
        bind_length(_module(network, ROWS, LONGEST), _module(network, ROWS, LONGEST - 4), MODE)
