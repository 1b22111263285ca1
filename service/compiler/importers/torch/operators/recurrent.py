"""LSTM, GRU and plain recurrent layers, unrolled into their steps. Their weights are real, or their activations are
quantized at run time (`torch.ao.quantization.quantize_dynamic`).

As in PyTorch (aten/src/ATen/native/RNN.cpp), the inputs of all steps are multiplied by the weights at once. If they are
quantized, they have one range, and the state of each step has a range of its own. The gates are real values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.real import Real
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.dynamic import scaled
from service.compiler.importers.torch.packed import Cell, Packed
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of

MOST_STEPS = 256
_LSTM_GATES, _GRU_GATES = 4, 3
State = tuple[relax.Expr, ...]  # `[1, hidden]` or `[1, batch, hidden]` each
# (products of the input, products of the state, state) -> next state
Step = Callable[["_Gates", "_Gates", State], State]


@dataclass(frozen=True)
class _Gates:
    """The products of one step, one row of `gates * hidden` values for each sample."""

    made: Real
    products: relax.Expr
    hidden: int

    def part(self, index: int) -> relax.Expr:
        axis = len(shape_of(self.products)) - 1
        bounds = [index * self.hidden], [(index + 1) * self.hidden]
        return self.made(relax.op.strided_slice(self.products, [axis], *bounds))

    def sum(self, other: _Gates, index: int) -> relax.Expr:
        return self.made.apply(relax.op.add, other.part(index), self.part(index))

    def of(self, function: str, x: relax.Expr) -> relax.Expr:
        return self.made(ops.real_function(function, x))


def _lstm_step(of_input: _Gates, of_state: _Gates, state: State) -> State:
    """The order of the gates is input, forget, cell, output."""
    memory, apply = state[1], of_input.made.apply
    sums = [of_input.sum(of_state, index) for index in range(_LSTM_GATES)]
    entering, kept, leaving = (of_input.of("logistic", sums[index]) for index in (0, 1, 3))
    new = apply(relax.op.multiply, entering, of_input.of("tanh", sums[2]))
    memory = apply(relax.op.add, apply(relax.op.multiply, kept, memory), new)
    return apply(relax.op.multiply, leaving, of_input.of("tanh", memory)), memory


def _gru_step(of_input: _Gates, of_state: _Gates, state: State) -> State:
    """The order of the gates is reset, update, new."""
    hidden, apply = state[0], of_input.made.apply
    reset, update = (of_input.of("logistic", of_input.sum(of_state, index)) for index in range(2))
    remembered = apply(relax.op.multiply, of_state.part(2), reset)
    new = of_input.of("tanh", apply(relax.op.add, of_input.part(2), remembered))
    change = apply(relax.op.multiply, apply(relax.op.subtract, hidden, new), update)
    return (apply(relax.op.add, change, new),)


def _plain_step(function: str) -> Step:
    """Returns the step of a layer without gates: `function` of the sum of both products."""

    def step(of_input: _Gates, of_state: _Gates, _: State) -> State:
        total = of_input.sum(of_state, 0)
        if function == "relu":
            return (of_input.made(relax.op.nn.relu(total)),)
        return (of_input.of(function, total),)

    return step


def _layers(
    node: Node,
    x: Any,
    states: Sequence[Any],
    params: Any,
    step: Step,
    gates: int,
    *,
    count: Any,
    is_bidirectional: Any,
    is_batch_first: Any,
) -> tuple[Value, ...]:
    """Returns the output `[steps, batch, directions * hidden]` and the states `[layers * directions, batch, hidden]`
    after the last step. `is_batch_first` swaps the first two axes of the input and the output.
    """
    value, batch_first = node.real_tensor(x).expr, node.flag(is_batch_first)
    node.require_supported(len(shape_of(value)) == 3, f"has an input of shape {list(shape_of(value))}")
    if batch_first:
        value = node.emit(relax.op.permute_dims(value, [1, 0, 2]), "steps")
    steps, batch, _ = shape_of(value)
    node.require_supported(steps <= MOST_STEPS, f"has {steps} steps; at most {MOST_STEPS} can be compiled")
    directions = 2 if node.flag(is_bidirectional) else 1
    cells = _cells(node, params, node.integer(count, 1) * directions, gates)
    hidden = cells[0].of_state.weight.data.shape[1]
    # With one sample, the first axis counts samples. Otherwise, it has the length 1, because all samples of a step
    # share one range.
    rows = (batch,) if batch == 1 else (1, batch)
    value = node.emit(relax.op.reshape(value, (1, steps, *(() if batch == 1 else (batch,)), shape_of(value)[2])), "x")
    initial = [_initial(node, each, (len(cells), batch, hidden), rows) for each in states]
    ended: list[State] = []
    for first in range(0, len(cells), directions):
        outputs = []
        for direction in range(directions):
            cell, state = cells[first + direction], tuple(each[first + direction] for each in initial)
            passed, state = _run(node, cell, step, value, state, is_backward=direction == 1)
            outputs.append(passed)
            ended.append(state)
        whole = [_with_steps(node, each) for each in _side_by_side(node, outputs)]
        value = node.emit(relax.op.concat(whole, axis=1), "outputs")
    output = node.emit(relax.op.reshape(value, (steps, batch, directions * hidden)), "output")
    if batch_first:
        output = node.emit(relax.op.permute_dims(output, [1, 0, 2]), "output")
    lasts = [
        relax.op.concat([node.emit(relax.op.reshape(each, (1, batch, hidden))) for each in parts], axis=0)
        for parts in zip(*ended, strict=True)
    ]
    return Value(output), *(node.value(each, None) for each in lasts)


def _side_by_side(node: Node, outputs: Sequence[Sequence[relax.Expr]]) -> list[relax.Expr]:
    """Returns the outputs of each step, with those of all directions in one row."""
    if len(outputs) == 1:
        return list(outputs[0])
    return [node.emit(relax.op.concat(list(each), axis=-1), "outputs") for each in zip(*outputs, strict=True)]


def _with_steps(node: Node, x: relax.Expr) -> relax.Expr:
    """Returns `[1, …]` as `[1, 1, …]`, with an axis of one step."""
    return node.emit(relax.op.reshape(x, (1, 1, *shape_of(x)[1:])), "output")


def _run(
    node: Node, cell: Cell, step: Step, x: relax.Expr, state: State, *, is_backward: bool
) -> tuple[list[relax.Expr], State]:
    """Runs one direction of a layer on `[1, steps, …, inputs]`. Returns the hidden state after each step, in the order
    of the input, and the last state.
    """
    width, hidden = cell.of_input.weight.data.shape[1], cell.of_state.weight.data.shape[1]
    node.require(shape_of(x)[-1] == width, f"cannot multiply shape {list(shape_of(x))} by weights for {width} values")
    made = Real(node.emit, x)
    products = _products(node, x, cell.of_input, cell, "input_products")
    passed: list[relax.Expr] = []
    steps = range(shape_of(x)[1])
    for index in reversed(steps) if is_backward else steps:
        part = made(relax.op.strided_slice(products, [1], [index], [index + 1]))
        of_state = _products(node, state[0], cell.of_state, cell, "state_products")
        of_input = _Gates(made, made(relax.op.reshape(part, shape_of(of_state))), hidden)
        state = step(of_input, _Gates(made, of_state, hidden), state)
        passed.append(state[0])
    return passed[::-1] if is_backward else passed, state


def _products(node: Node, x: relax.Expr, layer: Packed, cell: Cell, part: str) -> relax.Expr:
    """Returns the rows of `x` times the weights of a cell."""
    if layer.weight.quantization is not None:
        return node.emit(scaled(node, x, layer, reduced=cell.reduced), part)
    columns = relax.const(np.ascontiguousarray(layer.weight.data.T))
    bias = None if layer.bias is None else relax.const(np.ascontiguousarray(layer.bias))
    shape = shape_of(x)
    rows = node.emit(relax.op.reshape(x, (math.prod(shape[:-1]), shape[-1])), "rows")
    made = node.emit(ops.real_matmul(rows, columns, bias), part)
    return node.emit(relax.op.reshape(made, (*shape[:-1], len(layer.weight.data))), part)


def _initial(node: Node, value: Any, shape: tuple[int, int, int], rows: tuple[int, ...]) -> list[relax.Expr]:
    """Returns the initial state of each layer and direction."""
    if isinstance(value, Tensor) and not value.data.any():
        node.require(value.data.shape == shape, f"has an initial state {list(value.data.shape)}, not {list(shape)}")
        zeros = relax.const(np.zeros((*rows, shape[2]), np.float32))
        return [zeros] * shape[0]
    state = node.real_tensor(value).expr
    node.require(shape_of(state) == shape, f"has an initial state {list(shape_of(state))}, not {list(shape)}")
    parts = [node.emit(relax.op.strided_slice(state, [0], [index], [index + 1])) for index in range(shape[0])]
    return [node.emit(relax.op.reshape(each, (*rows, shape[2])), "state") for each in parts]


def _cells(node: Node, params: Any, count: int, gates: int) -> list[Cell]:
    cells = params if isinstance(params, list | tuple) else []
    node.require(len(cells) == count, f"has the parameters of {len(cells)} cells, not of {count}")
    found = [each for each in cells if isinstance(each, Cell)]
    node.require_supported(len(found) == count, "has parameters that are not quantized dynamically")
    hidden = {each.of_state.weight.data.shape[1] for each in found}
    heights = {part.weight.data.shape[0] for each in found for part in (each.of_input, each.of_state)}
    fits = len(hidden) == 1 and heights == {gates * next(iter(hidden))}
    node.require(fits, f"has weights with {sorted(heights)} rows, for states of {sorted(hidden)} values")
    return found


def _lstm(
    node: Node,
    input: Any,
    hx: Any,
    params: Any,
    has_biases: Any,
    num_layers: Any,
    dropout: Any,
    train: Any,
    bidirectional: Any,
    batch_first: Any,
    dtype: Any = None,
    use_dynamic: Any = False,
) -> tuple[Value, ...]:
    _check_inference(node, dropout, train)
    is_pair = isinstance(hx, list | tuple) and len(hx) == 2
    node.require_supported(is_pair, "has other operands than a tensor of steps and a pair of states")
    run = partial(_layers, node, input, hx, params, _lstm_step, _LSTM_GATES)
    return run(count=num_layers, is_bidirectional=bidirectional, is_batch_first=batch_first)


def _gru(
    node: Node,
    input: Any,
    hx: Any,
    params: Any,
    has_biases: Any,
    num_layers: Any,
    dropout: Any,
    train: Any,
    bidirectional: Any,
    batch_first: Any,
) -> tuple[Value, ...]:
    _check_inference(node, dropout, train)
    run = partial(_layers, node, input, [hx], params, _gru_step, _GRU_GATES)
    return run(count=num_layers, is_bidirectional=bidirectional, is_batch_first=batch_first)


def _real_cells(node: Node, params: Any, has_biases: Any) -> list[Cell]:
    """Returns the cells of a list of weights: for each, those of the input and of the state, and their biases."""
    parts, each = params if isinstance(params, list | tuple) else [], 4 if node.flag(has_biases) else 2
    node.require(len(parts) % each == 0, f"has {len(parts)} parameters, not {each} for each cell")
    found = [part for part in parts if isinstance(part, Tensor) and part.data.dtype == np.float32]
    node.require_supported(len(found) == len(parts), "has parameters that are not constants of float32")
    cells = []
    for first in range(0, len(found), each):
        weights, biases = found[first : first + 2], [part.data for part in found[first + 2 : first + each]]
        fits = all(part.data.ndim == 2 for part in weights) and all(
            bias.shape == (len(part.data),) for part, bias in zip(weights, biases, strict=False)
        )
        node.require(fits, "has parameters of shapes that do not fit together")
        of_input, of_state = (Packed(part, bias) for part, bias in zip(weights, biases or (None, None), strict=True))
        cells.append(Cell(of_input, of_state, reduced=False))
    return cells


def _real(step: Step, gates: int, states: int = 1) -> Callable[..., tuple[Value, ...]]:
    """Returns the rule of a layer with real weights. `states` is the number of states of each cell."""

    def convert(
        node: Node,
        input: Any,
        hx: Any,
        params: Any,
        has_biases: Any,
        num_layers: Any,
        dropout: Any,
        train: Any,
        bidirectional: Any,
        batch_first: Any,
    ) -> tuple[Value, ...]:
        _check_inference(node, dropout, train)
        given = hx if isinstance(hx, list | tuple) else [hx]
        node.require_supported(len(given) == states, "has other operands than a tensor of steps and its states")
        count = node.integer(num_layers, 1) * (2 if node.flag(bidirectional) else 1)
        projected = isinstance(params, list | tuple) and len(params) == count * (5 if node.flag(has_biases) else 3)
        node.require_supported(not projected, "projects its states (proj_size)")
        cells = _real_cells(node, params, has_biases)
        run = partial(_layers, node, input, given, cells, step, gates)
        return run(count=num_layers, is_bidirectional=bidirectional, is_batch_first=batch_first)

    return convert


def _check_inference(node: Node, dropout: Any, train: Any) -> None:
    node.require_supported(not node.flag(train) or node.real(dropout) == 0, "drops values at random, as in training")


RULES: dict[str, Callable[..., tuple[Value, ...]]] = {
    "aten::gru": _real(_gru_step, _GRU_GATES),
    "aten::lstm": _real(_lstm_step, _LSTM_GATES, 2),
    "aten::quantized_gru": _gru,
    "aten::quantized_lstm": _lstm,
    "aten::rnn_relu": _real(_plain_step("relu"), 1),
    "aten::rnn_tanh": _real(_plain_step("tanh"), 1),
}
