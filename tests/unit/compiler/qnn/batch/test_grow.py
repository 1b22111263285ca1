"""A model of one sample is converted to a model of several samples, or refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.batch import batched
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType
from service.core.errors import UnsupportedOperator

Step = Callable[[relax.Expr], relax.Expr]


def module_of(shape: list[int], *steps: Step) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for step in steps:
                value = builder.emit(step(value))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


def pad(x: relax.Expr) -> relax.Expr:
    return relax.op.nn.pad(x, [0, 0, 1, 1, 1, 1, 0, 0])


def test_the_batch_is_the_first_axis_of_every_tensor() -> None:
    module = module_of([1, 4, 4, 3], pad, lambda x: relax.op.reshape(x, (1, 108)))
    function = graph.main_of(batched(module, 5))
    assert [graph.shape_of(each) for each in (*function.params, *graph.results_of(function))] == [
        (5, 4, 4, 3),
        (5, 108),
    ]


def test_a_constant_part_is_repeated_for_each_sample() -> None:
    token = relax.const(np.ones((1, 1, 4), np.int8))
    module = batched(module_of([1, 3, 4], lambda x: relax.op.concat([token, x], axis=1)), 2)
    assert graph.shape_of(graph.results_of(graph.main_of(module))[0]) == (2, 4, 4)
    samples = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    (actual,) = oracle.run(module, get_mode("onnxruntime"), [samples])
    np.testing.assert_array_equal(actual, np.concatenate([np.ones((2, 1, 4), np.int8), samples], axis=1))


def test_a_batch_of_one_is_the_unchanged_model() -> None:
    module = module_of([1, 4], lambda x: relax.op.reshape(x, (4,)))
    assert batched(module, 1) is module


@pytest.mark.parametrize(
    ("shape", "step"),
    [
        ([2, 4], lambda x: relax.op.reshape(x, (2, 2, 2))),
        ([1, 4], lambda x: relax.op.reshape(x, (4,))),
        ([1, 4, 1, 1], lambda x: relax.op.permute_dims(x, [1, 0, 2, 3])),
        ([1, 2, 2, 1], lambda x: relax.op.nn.pad(x, [0, 1, 0, 0, 0, 0, 0, 0])),
    ],
    ids=["batch of two", "flattened", "moved", "padded"],
)
def test_operators_that_mix_samples_are_refused(shape: list[int], step: Step) -> None:
    with pytest.raises(UnsupportedOperator, match="mixes samples"):
        batched(module_of(shape, step), 3)


TYPE = QuantizedType("int8", (0.5,), (3,))
STEPS: dict[str, list[Step]] = {
    "moved among ones": [lambda x: relax.op.permute_dims(x, [1, 0, 2, 3]), lambda x: relax.op.max(x, axis=[0])],
    "parts in front": [
        lambda x: relax.op.permute_dims(x, [2, 0, 1, 3]),
        lambda x: relax.op.strided_slice(x, [0], [1], [2], [1]),
        lambda x: relax.op.reshape(x, (1, 2, 4)),
    ],
    "rows": [
        lambda x: relax.op.reshape(x, (6, 4)),
        lambda x: relax.op.add(x, relax.const(np.ones((6, 4), np.int8))),
        lambda x: relax.op.reshape(x, (1, 6, 4)),
    ],
    "rows of a matrix": [
        lambda x: relax.op.reshape(x, (6, 4)),
        lambda x: ops.matmul(x, relax.const(np.arange(8, dtype=np.int8).reshape(4, 2)), TYPE, TYPE),
        lambda x: relax.op.reshape(x, (1, 12)),
    ],
    "largest of all rows": [
        lambda x: relax.op.reshape(x, (6, 4)),
        lambda x: relax.op.max(x, axis=[0], keepdims=True),
    ],
    "largest beside its rows": [
        lambda x: relax.op.reshape(x, (6, 4)),
        lambda x: relax.op.subtract(x, relax.op.max(x, axis=[0, 1], keepdims=True)),
        lambda x: relax.op.reshape(x, (1, 6, 4)),
    ],
    "picked among all": [
        lambda x: relax.op.reshape(x, (24,)),
        lambda x: relax.op.take(x, relax.const(np.array([[5, 0, 23]])), 0, mode="clip"),
    ],
    "heads as matrices": [
        lambda x: relax.op.reshape(x, (2, 3, 4)),
        lambda x: ops.matmul(x, relax.op.permute_dims(x, [0, 2, 1]), TYPE, TYPE),
        lambda x: relax.op.reshape(x, (1, 2, 9)),
    ],
    "inside of an axis": [
        lambda x: relax.op.permute_dims(x, [1, 0, 2, 3]),
        lambda x: relax.op.reshape(x, (6, 4)),
        lambda x: relax.op.permute_dims(x, [1, 0]),
        lambda x: relax.op.nn.relu(x),
        lambda x: relax.op.reshape(x, (4, 2, 1, 3)),
        lambda x: relax.op.permute_dims(x, [2, 0, 1, 3]),
    ],
    "joined to rows": [
        lambda x: relax.op.reshape(x, (12, 2)),
        lambda x: relax.op.concat([relax.const(np.arange(12, dtype=np.int8).reshape(6, 2)), x], axis=0),
        lambda x: relax.op.reshape(x, (1, 36)),
    ],
    "repeated": [
        lambda x: relax.op.max(x, axis=[1]),
        lambda x: relax.op.reshape(x, (1, 3, 1, 4)),
        lambda x: relax.op.broadcast_to(x, (1, 3, 2, 4)),
    ],
    "places": [lambda x: relax.op.argmax(x, axis=1)],
}


@pytest.mark.parametrize("name", STEPS)
def test_each_sample_has_the_result_that_it_has_alone(name: str) -> None:
    module, mode = module_of([1, 2, 3, 4], *STEPS[name]), get_mode("onnxruntime")
    samples = np.random.default_rng(1).integers(-128, 128, (3, 2, 3, 4)).astype(np.int8)
    alone = np.concatenate([oracle.run(module, mode, [each[np.newaxis]])[0] for each in samples])
    (together,) = oracle.run(batched(module, 3), mode, [samples])
    np.testing.assert_array_equal(together, alone)


def test_values_that_depend_on_no_input_are_unchanged() -> None:
    rows = relax.const(np.ones((4, 3), "int8"))

    def added(x: relax.Expr, builder: relax.BlockBuilder) -> relax.Expr:
        return relax.op.add(x, builder.emit(relax.op.permute_dims(rows, [1, 0])))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 3, 4], "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(added(x, builder))
        builder.emit_func_output(output)
    (result,) = graph.results_of(graph.main_of(batched(builder.get(), 6)))
    assert graph.shape_of(result) == (6, 3, 4)
