"""The axes of tensors along which nothing reads elements beyond the length of the input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.lengths.axes import Axes
from service.compiler.qnn.lengths.unread import UnreadAxes
from service.compiler.qnn.ops.real import LANES
from tests.support.qnn_models import Emit, i8, module_of

LONG = 12
INT8 = i8(0.5, 3)
Value = relax.Expr


def axes_of(value: object, shapes: Sequence[tuple[tuple[int, ...], str]], inputs: Sequence[Axes]) -> Axes:
    """Returns the axes of the value that `value` computes from inputs with `shapes`."""

    def build(emit: Emit, variables: list[relax.Var]) -> relax.Var:
        return emit(value(*variables[: len(inputs)]))  # type: ignore[operator]

    # The last parameter is the length.
    function = graph.main_of(module_of([*shapes, ((1,), "int32")], build))
    return UnreadAxes(function, inputs).of(list(graph.bindings(function))[-1][0])


ROWS = ((1, LONG, 6), "float32")
BYTES = ((1, LONG, 6), "int8")
SCORES = ((3, LONG, LONG), "float32")
WEIGHTS = np.ones((4, 1, 1, 6), np.int8)


@pytest.mark.parametrize(
    ("value", "shapes", "inputs", "axes"),
    [
        pytest.param(
            lambda x: relax.op.add(x, relax.const(np.ones((LONG, 6), np.float32))), [ROWS], [(1,)], (1,), id="constant"
        ),
        pytest.param(relax.op.add, [ROWS, ((6,), "float32")], [(1,), ()], (1,), id="bias"),
        pytest.param(relax.op.add, [ROWS, ROWS], [(1,), (1,)], (1,), id="sum"),
        pytest.param(relax.op.add, [ROWS, ROWS], [(1,), ()], (1,), id="sum with an input of one length"),
        pytest.param(relax.op.add, [SCORES, ((LONG,), "float32")], [(1, 2), ()], (1, 2), id="mask of the columns"),
        pytest.param(lambda x: relax.op.permute_dims(x, [2, 0, 1]), [ROWS], [(1,)], (2,), id="permute"),
        pytest.param(lambda x: relax.op.reshape(x, [1, LONG, 2, 3]), [ROWS], [(1,)], (1,), id="heads"),
        pytest.param(lambda x: relax.op.reshape(x, [LONG * 6]), [ROWS], [(1,)], (), id="flattened"),
        pytest.param(lambda x: relax.op.reshape(x, [1, 6, LONG]), [ROWS], [(1,)], (), id="moved"),
        pytest.param(
            ops.real_matmul, [SCORES, ((3, LONG, 5), "float32")], [(1, 2), (1,)], (1,), id="rows of a product"
        ),
        pytest.param(
            ops.real_matmul, [((3, LONG, 5), "float32"), ((3, 5, LONG), "float32")], [(1,), (2,)], (1, 2), id="both"
        ),
        pytest.param(lambda x: ops.real_sum(x, axes=[2], order=LANES), [SCORES], [(1, 2)], (1,), id="sum of a row"),
        pytest.param(lambda x: relax.op.max(x, axis=[0], keepdims=False), [SCORES], [(1, 2)], (0, 1), id="maximum"),
        pytest.param(ops.real_mean, [ROWS], [(1,)], (1,), id="mean"),
        pytest.param(
            lambda x: ops.softmax(x, INT8, i8(1 / 256, -128)), [((3, LONG, LONG), "int8")], [(1, 2)], (1,), id="softmax"
        ),
        pytest.param(
            lambda x: relax.op.take(relax.const(np.ones((9, 6), np.float32)), x, axis=0),
            [((1, LONG), "int32")],
            [(1,)],
            (1,),
            id="embedding",
        ),
        pytest.param(
            lambda x, y: relax.op.take(x, y, axis=0),
            [((9, 6), "float32"), ((1, LONG), "int32")],
            [(0,), (1,)],
            (),
            id="take of a tensor",
        ),
        pytest.param(
            lambda x: relax.op.strided_slice(x, [2], [0], [4]), [ROWS], [(1,)], (1,), id="slice of the columns"
        ),
        pytest.param(lambda x: relax.op.strided_slice(x, [1], [0], [1]), [ROWS], [(1,)], (), id="first row"),
        pytest.param(
            lambda x, y: relax.op.concat([x, y], axis=2), [ROWS, ROWS], [(1,), (1,)], (1,), id="concatenation"
        ),
        pytest.param(
            lambda x, y: relax.op.concat([x, y], axis=2),
            [ROWS, ROWS],
            [(1,), ()],
            (1,),
            id="with an input of one length",
        ),
        pytest.param(
            lambda x: ops.conv2d(x, relax.const(WEIGHTS), None, INT8, i8(0.25)),
            [((1, LONG, 1, 6), "int8")],
            [(1,)],
            (1,),
            id="dense",
        ),
        pytest.param(
            lambda x: ops.conv2d(
                x, relax.const(np.ones((4, 3, 1, 6), np.int8)), None, INT8, i8(0.25), padding=(1, 0, 1, 0)
            ),
            [((1, LONG, 1, 6), "int8")],
            [(1,)],
            (),
            id="convolution",
        ),
        pytest.param(lambda x: ops.running_sum(x, axis=1), [ROWS], [(1,)], (1,), id="running sum"),
        pytest.param(
            lambda x: relax.op.gather_elements(x, relax.const(np.zeros((1, LONG, 2), np.int64)), axis=2),
            [ROWS],
            [(1,)],
            (1,),
            id="columns at given places",
        ),
        pytest.param(
            lambda x: relax.op.gather_elements(x, relax.const(np.zeros((1, LONG, 6), np.int64)), axis=1),
            [ROWS],
            [(1,)],
            (),
            id="rows at given places",
        ),
        pytest.param(lambda x: relax.op.flip(x, 1), [ROWS], [(1,)], (), id="an operator without a rule"),
    ],
)
def test_axes(value: object, shapes: list[tuple[tuple[int, ...], str]], inputs: list[Axes], axes: Axes) -> None:
    assert axes_of(value, shapes, inputs) == axes


def fill(x: relax.Expr, length: relax.Expr, axes: int) -> relax.Expr:
    """Replaces elements beyond the length along an axis that `axes` other axes follow."""
    positions = relax.const(np.arange(LONG, dtype=np.int32).reshape([LONG] + [1] * axes))
    return relax.op.where(relax.op.less(positions, length), x, relax.const(0.0))


@pytest.mark.parametrize(
    ("value", "axes"),
    [
        pytest.param(lambda x, length: fill(x, length, 0), (1,), id="columns"),
        pytest.param(lambda x, length: fill(x, length, 1), (2,), id="rows"),
        pytest.param(lambda x, length: relax.op.exp(fill(x, length, 0)), (1,), id="computed from filled columns"),
        pytest.param(lambda x, length: relax.op.add(x, fill(x, length, 0)), (1,), id="added to filled columns"),
        pytest.param(
            lambda x, length: relax.op.divide(x, relax.op.astype(length, "float32")), (1, 2), id="divided by the length"
        ),
        pytest.param(
            lambda x, length: relax.op.sum(fill(x, length, 0), axis=[2], keepdims=True),
            (1,),
            id="sum of filled columns",
        ),
    ],
)
def test_elements_that_were_filled_are_read(value: object, axes: Axes) -> None:
    """The elements of `where(position < length, x, 0)` beyond the length are zeros that a sum needs."""

    def build(emit: Emit, variables: list[relax.Var]) -> relax.Var:
        return emit(value(*variables))  # type: ignore[operator]

    function = graph.main_of(module_of([SCORES, ((1,), "int32")], build))
    assert UnreadAxes(function, [(1, 2)]).of(list(graph.bindings(function))[-1][0]) == axes


def test_an_operator_that_takes_the_length_does_not_read_columns_beyond_it() -> None:
    def build(emit: Emit, variables: list[relax.Var]) -> relax.Var:
        return emit(ops.softmax(variables[0], INT8, i8(1 / 256, -128), length=variables[1]))

    function = graph.main_of(module_of([((3, LONG, LONG), "int8"), ((1,), "int32")], build))
    assert UnreadAxes(function, [(1, 2)]).of(list(graph.bindings(function))[-1][0]) == (1, 2)


@pytest.mark.parametrize(
    ("numbers", "is_inside"),
    [(np.arange(LONG), True), (np.arange(LONG).reshape(1, LONG), True), (np.arange(LONG).reshape(LONG, 1), False),
     (np.arange(LONG)[::-1], False)],
)  # fmt: skip
def test_which_positions_are_inside_the_length(numbers: np.ndarray, is_inside: bool) -> None:
    def build(emit: Emit, variables: list[relax.Var]) -> relax.Var:
        return emit(relax.op.less(relax.const(numbers.astype(np.int32)), variables[-1]))

    function = graph.main_of(module_of([SCORES, ((1,), "int32")], build))
    assert UnreadAxes(function, [(1, 2)]).is_inside(next(graph.bindings(function))[0]) == is_inside


def test_a_value_that_is_repeated_along_an_axis_does_not_count() -> None:
    def build(emit: Emit, variables: list[relax.Var]) -> relax.Var:
        return emit(relax.op.add(variables[0], relax.op.broadcast_to(variables[1], [3, LONG, LONG])))

    function = graph.main_of(module_of([SCORES, ((1, 1, LONG), "float32"), ((1,), "int32")], build))
    assert UnreadAxes(function, [(1, 2), (2,)]).of(list(graph.bindings(function))[-1][0]) == (1, 2)


def test_without_a_length_no_axis_is_unread() -> None:
    function = graph.main_of(module_of([ROWS], lambda emit, variables: emit(relax.op.exp(variables[0]))))
    assert UnreadAxes(function, ()).of(list(graph.bindings(function))[-1][0]) == ()
