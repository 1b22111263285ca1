"""A model of one sample becomes one of several, or is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import graph, oracle
from service.compiler.qnn.batch import batched
from service.compiler.qnn.numerics import get_mode
from service.core.errors import UnsupportedOperator


def module_of(shape: list[int], *steps: object) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for step in steps:
                value = builder.emit(step(value))  # type: ignore[operator]
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


def pad(x: relax.Expr) -> relax.Expr:
    return relax.op.nn.pad(x, [0, 0, 1, 1, 1, 1, 0, 0])


def test_every_tensor_has_the_batch_first() -> None:
    module = module_of([1, 4, 4, 3], pad, lambda x: relax.op.reshape(x, (1, 108)))
    function = graph.main_of(batched(module, 5))
    assert [graph.shape_of(each) for each in (*function.params, *graph.results_of(function))] == [
        (5, 4, 4, 3),
        (5, 108),
    ]


def test_a_constant_part_is_there_for_each_sample() -> None:
    token = relax.const(np.ones((1, 1, 4), np.int8))
    module = batched(module_of([1, 3, 4], lambda x: relax.op.concat([token, x], axis=1)), 2)
    assert graph.shape_of(graph.results_of(graph.main_of(module))[0]) == (2, 4, 4)
    samples = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    (actual,) = oracle.run(module, get_mode("onnxruntime"), [samples])
    np.testing.assert_array_equal(actual, np.concatenate([np.ones((2, 1, 4), np.int8), samples], axis=1))


def test_one_sample_is_the_model_as_it_came() -> None:
    module = module_of([1, 4], lambda x: relax.op.reshape(x, (4,)))
    assert batched(module, 1) is module


@pytest.mark.parametrize(
    ("shape", "step"),
    [
        ([2, 4], lambda x: relax.op.reshape(x, (2, 2, 2))),
        ([1, 4], lambda x: relax.op.reshape(x, (4,))),
        ([1, 4, 1, 1], lambda x: relax.op.permute_dims(x, [1, 0, 2, 3])),
        ([1, 1, 4, 1], lambda x: relax.op.permute_dims(x, [1, 0, 2, 3])),
        ([1, 2, 2, 1], lambda x: relax.op.nn.pad(x, [0, 1, 0, 0, 0, 0, 0, 0])),
    ],
    ids=["batch of two", "flattened", "moved", "moved among ones", "padded"],
)
def test_what_mixes_samples_is_refused(shape: list[int], step: object) -> None:
    with pytest.raises(UnsupportedOperator, match="does not keep samples apart"):
        batched(module_of(shape, step), 3)


def test_what_no_input_decides_stays_as_it_is() -> None:
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
