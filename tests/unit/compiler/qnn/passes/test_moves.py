"""Elementwise operators move before reshapes, and slices of heads become slices of channels. No element changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes.moves import move_reshapes
from service.compiler.qnn.types import QuantizedType
from tests.support.qnn_models import Emit, module_of

KIND, OTHER = (QuantizedType("int8", (scale,), (zero,)) for scale, zero in ((0.5, 3), (0.75, -5)))
MODE, SHAPE = get_mode("onnxruntime"), (2, 5, 24)
Body = Callable[[Emit, relax.Var], relax.Var]


def heads(emit: Emit, x: relax.Expr) -> relax.Var:
    return emit(relax.op.reshape(x, (2, 5, 3, 2, 4)))


def cut(emit: Emit, x: relax.Expr, axis: int, begin: int, end: int, step: int = 1) -> relax.Var:
    return emit(relax.op.strided_slice(x, [axis], [begin], [end], [step]))


def scaled(emit: Emit, x: relax.Expr, constant: np.ndarray) -> relax.Var:
    return emit(ops.mul(x, relax.const(constant), KIND, KIND, OTHER))


MOVED: dict[str, tuple[Body, list[str]]] = {
    "a function": (lambda e, x: e(ops.requantize(heads(e, x), KIND, OTHER)), ["requantize"]),
    "one constant": (lambda e, x: scaled(e, heads(e, x), np.full((1, 1, 1), 7, np.int8)), ["mul"]),
    "a part": (lambda e, x: e(ops.requantize(cut(e, heads(e, x), 2, -2, -1), KIND, OTHER)), ["slice", "requantize"]),
    "twice": (
        lambda e, x: e(ops.add(cut(e, heads(e, x), 2, 0, 1), cut(e, heads(e, x), 2, 2, 3), KIND, KIND, OTHER)),
        ["slice", "slice", "add"],
    ),
    "behind two": (
        lambda e, x: e(ops.requantize(e(relax.op.reshape(heads(e, x), (10, 24))), KIND, OTHER)),
        ["requantize"],
    ),
}
KEPT: dict[str, Body] = {
    "a constant for each": lambda e, x: scaled(e, heads(e, x), np.arange(4, dtype=np.int8)),
    "a broadcast": lambda e, x: scaled(e, e(relax.op.reshape(x, (2, 5, 1, 24))), np.full((1, 1, 3, 1), 7, np.int8)),
    "other channels": lambda e, x: cut(e, heads(e, x), 3, 0, 1),
    "every other one": lambda e, x: cut(e, heads(e, x), 2, 0, 3, 2),
    "tokens": lambda e, x: cut(e, heads(e, x), 1, 1, 3),
    "other operands": lambda e, x: e(
        ops.add(heads(e, x), e(relax.op.permute_dims(heads(e, x), (0, 1, 2, 3, 4))), KIND, KIND, OTHER)
    ),
}


@pytest.mark.parametrize("name", [*MOVED, *KEPT])
def test_no_element_changes(name: str) -> None:
    body = MOVED[name][0] if name in MOVED else KEPT[name]
    module = module_of([(SHAPE, "int8")], lambda emit, inputs: body(emit, inputs[0]))
    moved, names = move_reshapes(module, MODE)
    sample = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)
    for expected, actual in zip(oracle.run(module, MODE, [sample]), oracle.run(moved, MODE, [sample]), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert len(names) == (len(MOVED[name][1]) if name in MOVED else 0)
    calls = [value for _, value in graph.bindings(graph.main_of(moved)) if isinstance(value, relax.Call)]
    shapes = {len(graph.shape_of(call.args[0])) for call in calls if call.op.name != "relax.reshape"}
    assert shapes == {3} if name in MOVED else 3 not in shapes
