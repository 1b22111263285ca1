"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN, and SVDF of real values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.sequences import products
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_PLACES = (1, 2, 3, 4)  # input weights, recurrent weights, bias and hidden state
_BACKWARD = (5, 6, 7, 8)
_AUXILIARY, _AUXILIARY_WEIGHTS = 9, (10, 11)


def step(node: Node) -> relax.Expr:
    """Converts RNN: `[N, K]` -> `[N, U]` (tflite/kernels/basic_rnn.cc)."""
    shape = node.input(0).shape
    node.require(len(shape) == 2, f"has an input of shape {list(shape)}, not two dimensions", node.input(0))
    (result,) = _run(node, [node.expr(0)], _PLACES)
    return result


def sequence(node: Node) -> relax.Expr:
    time_major = bool(node.option("time_major"))
    steps = products.steps_of(node, node.expr(0), time_major=time_major)
    return products.join_steps(node, _run(node, steps, _PLACES), time_major=time_major)


def bidirectional(node: Node) -> list[relax.Expr]:
    time_major = bool(node.option("time_major"))
    if any(node.has_input(position) for position in (_AUXILIARY, *_AUXILIARY_WEIGHTS)):
        node.unsupported("has an auxiliary input, which cannot be compiled")
    if time_major and node.input(_PLACES[0]).dtype != "float32":
        node.unsupported("has int8 weights and a time-major input, of which LiteRT reads other rows")
    steps = products.steps_of(node, node.expr(0), time_major=time_major)
    forward = products.join_steps(node, _run(node, steps, _PLACES), time_major=time_major)
    backward = products.join_steps(node, _run(node, steps[::-1], _BACKWARD)[::-1], time_major=time_major)
    return products.merge_directions(node, forward, backward)


def _run(node: Node, steps: Sequence[relax.Expr], places: Sequence[int]) -> list[relax.Expr]:
    """Returns the activation of bias + input * weights + state * recurrent weights for each step
    (`RnnBatchStep` in tflite/kernels/internal/kernel_utils.cc).
    """
    weights, recurrent, bias_place, hidden_place = places
    units = node.input(weights).shape[0]
    of_input, of_hidden = (products.product(node, [each]) for each in (weights, recurrent))
    bias, activation = relax.const(products.vector(node, bias_place, units)), products.activation(node)
    hidden = products.state(node, hidden_place, shape_of(steps[0])[0], units)
    found = []
    for x in steps:
        seen = node.emit(relax.op.add(of_input(x), bias), "biased")
        hidden = activation(node.emit(relax.op.add(seen, of_hidden(hidden)), "sums"))
        found.append(hidden)
    products.keep(node, hidden_place, hidden)
    return found


_FEATURE, _TIME, _BIAS, _PAST = 1, 2, 3, 4


def svdf(node: Node) -> relax.Expr:
    """Converts SVDF of real values, `[N, K]` -> `[N, U]`. The newest feature of each filter is appended to its past
    ones, `[N, F * M]`, of which the oldest is dropped. The weighted sums over time are added over the filters of a unit
    (`EvalFloatSVDF` in reference/svdf.h).
    """
    shape, (filters, memory) = node.input(0).shape, node.input(_TIME).shape
    rank = node.int_option("rank", least=1)
    node.require(len(shape) == 2 and filters % rank == 0, f"has an input of shape {list(shape)} or rank {rank}")
    node.require(node.input(_FEATURE).shape == (filters, shape[1]), "has weights whose shapes do not fit its input")
    rows, units = shape[0], filters // rank
    newest = node.emit(relax.op.reshape(products.product(node, [_FEATURE])(node.expr(0)), (rows, filters, 1)), "newest")
    past = newest
    if memory > 1:
        cube = products.state(node, _PAST, rows, filters * memory)
        cube = node.emit(relax.op.reshape(cube, (rows, filters, memory)), "past")
        older = node.emit(relax.op.strided_slice(cube, [2], [1], [memory]), "older")
        past = node.emit(relax.op.concat([older, newest], 2), "memory")
    products.keep(node, _PAST, past)
    weighted = node.emit(relax.op.multiply(past, relax.const(_time_weights(node))), "weighted")
    sums = node.emit(relax.op.sum(weighted, axis=[2]), "sums")
    parts = node.emit(relax.op.reshape(sums, (rows, units, rank)), "filters")
    total = node.emit(relax.op.sum(parts, axis=[2]), "total")
    if node.has_input(_BIAS):
        total = node.emit(relax.op.add(total, relax.const(products.vector(node, _BIAS, units))), "biased")
    return products.activation(node)(total)


def _time_weights(node: Node) -> Array:
    data = node.data(_TIME)
    if data.dtype == np.float32:
        return data
    node.require(data.dtype == np.int8, f"has weights of {data.dtype}", node.input(_TIME))
    return np.asarray(data.astype(np.float32) * np.float32(node.per_tensor(node.input(_TIME)).scale))
