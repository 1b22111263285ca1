"""The order of axes in the ONNX graph that is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tests.support.examples import examples
from tests.support.exported_operators import agrees, of

MOVES: dict[str, Any] = {
    "concat": lambda emit, x: relax.op.concat([x, emit(relax.op.negative(x))], 3),
    "gather": lambda emit, x: relax.op.take(x, relax.const(np.array([2, 0], np.int64), "int64"), 2, mode="clip"),
    "largest": lambda emit, x: relax.op.max(x, [1]),
    "pad": lambda emit, x: relax.op.nn.pad(x, [0, 0, 1, 2, 0, 1, 3, 0], pad_value=-1.5),
    "reshape": lambda emit, x: relax.op.reshape(x, [2, 12, 5]),
    "slice": lambda emit, x: relax.op.strided_slice(x, [1, 3], [0, 1], [3, 5], [2, 1]),
    "smallest place": lambda emit, x: relax.op.astype(emit(relax.op.argmin(x, 3)), "float32"),
    "sum": lambda emit, x: relax.op.sum(x, [1, 3], keepdims=True),
    "tile": lambda emit, x: relax.op.tile(x, [1, 2, 1, 3]),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 3, 1, 2), (1, 0, 3, 2)])
def test_axes_follow_the_order_of_the_tensor(name: str, axes: tuple[int, ...]) -> None:
    """The axes are permuted first. The permutation becomes an operator only if it matters."""
    shape = [(2, 3, 4, 5)[axes.index(axis)] for axis in range(4)]
    imported = of(lambda emit, x: MOVES[name](emit, emit(relax.op.permute_dims(x, axes))), shape)
    x = np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)
    assert agrees(imported, [x]).count("Transpose") <= 1


def test_a_broadcast_operand_gets_the_same_order() -> None:
    def make(emit: Any, x: relax.Expr, row: relax.Expr) -> relax.Expr:
        moved = emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        scaled = emit(relax.op.multiply(moved, relax.const(np.arange(3, dtype=np.float32))))
        return relax.op.permute_dims(emit(relax.op.add(scaled, row)), [0, 3, 1, 2])

    rng = np.random.default_rng(0)
    inputs = [rng.normal(0, 1, shape).astype(np.float32) for shape in ((1, 3, 4, 5), (5, 3))]
    agrees(of(make, (1, 3, 4, 5), (5, 3)), inputs)


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_successive_permutations_become_at_most_one(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    orders = data.draw(st.lists(st.permutations(range(len(shape))), min_size=1, max_size=4))

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        for order in orders[:-1]:
            x = emit(relax.op.negative(emit(relax.op.permute_dims(x, order))))
        return relax.op.permute_dims(x, orders[-1])

    found = agrees(of(make, shape), [np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)])
    assert sum(each in ("Transpose", "Reshape") for each in found) <= 1
