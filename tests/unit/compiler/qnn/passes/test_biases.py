"""If a constant row is added to a product of real values, it becomes the product's bias; other constants do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes.biases import join_biases
from tests.support.qnn_models import Emit, module_of

RNG = np.random.default_rng(0)
MODE, SHAPE, IMAGE = get_mode("onnxruntime"), (2, 5, 6), (1, 3, 4, 6)
Body = Callable[[Emit, relax.Var], relax.Var]


def real(*shape: int) -> relax.Constant:
    return relax.const(RNG.standard_normal(shape).astype(np.float32))


def dense(emit: Emit, x: relax.Var) -> relax.Var:
    return emit(ops.real_matmul(x, real(6, 7)))


def conv(emit: Emit, x: relax.Var) -> relax.Var:
    return emit(ops.real_conv2d(x, real(7, 2, 2, 6), None))


JOINED: dict[str, tuple[tuple[int, ...], Body]] = {
    "behind": (SHAPE, lambda emit, x: emit(relax.op.add(dense(emit, x), real(7)))),
    "before": (SHAPE, lambda emit, x: emit(relax.op.add(real(1, 1, 7), dense(emit, x)))),
    "of pixels": (IMAGE, lambda emit, x: emit(relax.op.add(conv(emit, x), real(1, 1, 1, 7)))),
}


def twice(emit: Emit, x: relax.Var) -> relax.Var:
    sums = dense(emit, x)
    return emit(relax.op.multiply(emit(relax.op.add(sums, real(7))), sums))


KEPT: dict[str, tuple[tuple[int, ...], Body]] = {
    "another reader": (SHAPE, twice),
    "a value for each row": (SHAPE, lambda emit, x: emit(relax.op.add(dense(emit, x), real(5, 1)))),
    "one value": (SHAPE, lambda emit, x: emit(relax.op.add(dense(emit, x), real(1)))),
    "more than the product": (SHAPE, lambda emit, x: emit(relax.op.add(dense(emit, x), real(3, 1, 1, 7)))),
    "a second bias": (
        SHAPE,
        lambda emit, x: emit(relax.op.add(emit(ops.real_matmul(x, real(6, 7), real(7))), real(7))),
    ),
}


@pytest.mark.parametrize("name", JOINED)
def test_a_constant_row_becomes_the_bias(name: str) -> None:
    shape, body = JOINED[name]
    module = module_of([(shape, "float32")], lambda emit, inputs: body(emit, inputs[0]))
    made, names = join_biases(module, MODE)
    x = RNG.standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(oracle.run(made, MODE, [x])[0], oracle.run(module, MODE, [x])[0])
    calls = [value for _, value in graph.bindings(graph.main_of(made)) if isinstance(value, relax.Call)]
    assert len(calls[-1].args) == 3
    assert all(call.op.name != "relax.add" for call in calls)
    assert len(names) == 1


@pytest.mark.parametrize("name", KEPT)
def test_other_additions_are_kept(name: str) -> None:
    shape, body = KEPT[name]
    module = module_of([(shape, "float32")], lambda emit, inputs: body(emit, inputs[0]))
    made, names = join_biases(module, MODE)
    assert made.same_as(module)
    assert names == []
