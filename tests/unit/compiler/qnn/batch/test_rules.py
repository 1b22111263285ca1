"""The rule of each operator: a batch has the results of its samples, or is refused because samples would mix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.batch import batched
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType
from service.core.errors import UnsupportedOperator

Step = Callable[[relax.Expr], relax.Expr]

SHAPE = (2, 3, 4)  # of one sample, after the axis of the batch
TYPE = QuantizedType("int8", (0.5,), (3,))
PROBABILITIES = QuantizedType("int8", (1 / 256,), (-128,))
MODE = get_mode("onnxruntime")


def constant(*shape: int) -> relax.Constant:
    return relax.const(np.arange(np.prod(shape)).astype(np.int8).reshape(shape))


def move_batch_last(x: relax.Expr) -> relax.Expr:
    """Moves the axis of the batch behind all others."""
    return relax.op.permute_dims(x, [1, 2, 3, 0])


def merged(x: relax.Expr) -> relax.Expr:
    """Makes rows of all samples: the batch is the outer part of an axis."""
    return relax.op.reshape(x, (6, 4))


def module_of(*steps: Step) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, *SHAPE], "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for step in steps:
                value = builder.emit(step(value))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


def first(x: relax.Expr) -> relax.Expr:
    """Moves the axis of the batch, which is the last one, to the front again."""
    rank = len(x.ty.shape)
    return relax.op.permute_dims(x, [rank - 1, *range(rank - 1)])


KEPT: dict[str, list[Step]] = {
    "a tensor that is the same for all samples": [lambda x: relax.op.add(x, constant(3, 1))],
    "a constant of the same shape, beside a moved batch": [
        move_batch_last,
        lambda x: relax.op.add(x, constant(4, 1)),
        first,
    ],
    "a mean along axes that end": [
        move_batch_last,
        lambda x: ops.mean(x, TYPE, TYPE, axes=[0, 2], keepdims=False),
        first,
    ],
    "a mean along axes that stay": [lambda x: ops.mean(x, TYPE, TYPE, axes=[2], keepdims=True)],
    "softmax": [lambda x: ops.softmax(x, TYPE, PROBABILITIES)],
    "the place of the greatest, before the batch": [move_batch_last, lambda x: relax.op.argmax(x, axis=0), first],
    "a slice of another axis": [move_batch_last, lambda x: relax.op.strided_slice(x, [1], [0], [3], [2]), first],
    "a concatenation of two tensors": [lambda x: relax.op.concat([x, relax.op.nn.relu(x)], axis=3)],
    "a concatenation with a constant": [lambda x: relax.op.concat([constant(1, 2, 1, 4), x], axis=2)],
    "a concatenation of rows": [
        merged,
        lambda x: relax.op.concat([x, x], axis=0),
        lambda x: relax.op.reshape(x, (1, 12, 4)),
    ],
    "elements that are picked before the batch": [
        move_batch_last,
        lambda x: relax.op.take(x, relax.const(np.array([2, 0, 1, 1])), 1, mode="clip"),
        first,
    ],
    "padding of other axes": [move_batch_last, lambda x: relax.op.nn.pad(x, [0, 1, 2, 0, 0, 0, 0, 0]), first],
    "a repeated row": [
        lambda x: relax.op.max(x, axis=[2], keepdims=True),
        lambda x: relax.op.broadcast_to(x, (1, *SHAPE)),
    ],
    "a product with a constant": [lambda x: ops.matmul(x, constant(4, 5), TYPE, TYPE)],
    "a product of two matrices of a sample": [
        lambda x: ops.matmul(x, relax.op.permute_dims(x, [0, 1, 3, 2]), TYPE, TYPE),
    ],
}
REFUSED: dict[str, list[Step]] = {
    "softmax along the batch": [move_batch_last, lambda x: ops.softmax(x, TYPE, PROBABILITIES)],
    "the place of the greatest sample": [lambda x: relax.op.argmax(x, axis=0)],
    "padding of the batch": [move_batch_last, lambda x: relax.op.nn.pad(x, [0, 0, 0, 0, 0, 0, 0, 1])],
    "a product along the batch": [move_batch_last, lambda x: ops.matmul(x, constant(1, 5), TYPE, TYPE)],
}


@pytest.mark.parametrize("name", KEPT)
def test_each_sample_has_the_result_that_it_has_alone(name: str) -> None:
    module = module_of(*KEPT[name])
    samples = np.random.default_rng(1).integers(-128, 128, (3, *SHAPE)).astype(np.int8)
    alone = np.concatenate([oracle.run(module, MODE, [each[np.newaxis]])[0] for each in samples])
    (together,) = oracle.run(batched(module, 3), MODE, [samples])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_along_the_batch_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedOperator, match="mixes samples"):
        batched(module_of(*REFUSED[name]), 3)
