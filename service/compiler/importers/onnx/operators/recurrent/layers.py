"""LSTM and GRU of real values, unrolled into their steps.

The formulas are ONNX's. As in ONNX Runtime (core/providers/cpu/rnn), the inputs of all steps are multiplied by the
weights at once, and the product with the state is added before the bias. The activation functions are MLAS's. Results
therefore differ from ONNX Runtime's only by the order in which products are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from tvm import relax

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.core.models.arrays import Array

MOST_STEPS = 256
# For each direction: true if it processes the steps in reverse.
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_LENGTHS, _PEEPHOLES = 4, 7
# `[batch, hidden]` each: an LSTM has the hidden state and the cell; a GRU has the hidden state only
State = tuple[relax.Expr, ...]
# Multiplies float32 rows `[rows, width]` by constant weights, giving float32 `[rows, columns]`.
Product = Callable[[relax.Expr], relax.Expr]


class Weights(Protocol):
    """The weights of one direction of a layer.

    Attributes:
        of_input: the product of inputs by the weights of all gates.
    """

    @property
    def of_input(self) -> Product: ...

    def of_state(self, first: int, last: int) -> Product:
        """Returns the product of hidden states by the weights of gates `first` to `last`. All calls of the returned
        function use the same constants.
        """
        ...


@dataclass(frozen=True)
class _RealWeights:
    """Weights of float32: W `[directions, gates * size, width]` and R `[directions, gates * size, size]`. They depend
    only on constants, possibly through a DequantizeLinear.
    """

    node: Node
    made: Real
    size: int
    direction: int

    @property
    def of_input(self) -> Product:
        return self._product(1, 0, self.node.shape(1)[1])

    def of_state(self, first: int, last: int) -> Product:
        return self._product(2, first * self.size, last * self.size)

    def _product(self, index: int, first: int, last: int) -> Product:
        value = self.node.value(index)
        if isinstance(value, np.ndarray):
            columns: relax.Expr = self.node.literal(value[self.direction, first:last].T)
        else:
            place = self.direction
            part = self.made(relax.op.strided_slice(value, [0, 1], [place, first], [place + 1, last]))
            rows = self.made(relax.op.reshape(part, (last - first, self.node.shape(index)[2])))
            columns = self.made(relax.op.permute_dims(rows, (1, 0)))
        return lambda x: self.made(ops.real_matmul(x, columns))


@dataclass(frozen=True)
class _Cell:
    """One direction of a layer.

    Attributes:
        made: the arithmetic with which values are emitted.
        size: the size of the hidden state.
        biases: the biases of the input's product and the biases of the state's product, float32 `[gates * size]` each.
    """

    node: Node
    made: Real
    size: int
    weights: Weights
    biases: tuple[Array, Array]

    def bias(self, parts: tuple[Array, ...], first: int, last: int) -> relax.Constant:
        """Returns the sum of the elements `parts` of `biases`, for gates `first` to `last`."""
        total: Array = np.add.reduce(parts)
        return self.node.literal(total[first * self.size : last * self.size])

    def gate(self, x: relax.Expr, index: int) -> relax.Expr:
        """Returns the columns of one gate."""
        bounds = [index * self.size], [(index + 1) * self.size]
        return self.made(relax.op.strided_slice(x, [1], *bounds))

    def of(self, function: str, x: relax.Expr) -> relax.Expr:
        return self.made(ops.real_function(function, x))

    def sum(self, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return self.made.apply(relax.op.add, x, y)

    def times(self, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return self.made.apply(relax.op.multiply, x, y)


Step = Callable[[relax.Expr, State], State]  # (input * weights of all gates, state) -> next state


def _lstm(cell: _Cell) -> Step:
    """Returns the function that computes one step of an LSTM. The order of its gates is input, output, forget, cell."""
    product, bias = cell.weights.of_state(0, 4), cell.bias(cell.biases, 0, 4)

    def step(x: relax.Expr, state: State) -> State:
        hidden, memory = state
        sums = cell.sum(cell.sum(x, product(hidden)), bias)
        entering, leaving, kept = (cell.of("logistic", cell.gate(sums, index)) for index in range(3))
        new = cell.times(entering, cell.of("tanh", cell.gate(sums, 3)))
        memory = cell.sum(cell.times(kept, memory), new)
        return cell.times(leaving, cell.of("tanh", memory)), memory

    return step


def _gru(cell: _Cell) -> Step:
    """Returns the function that computes one step of a GRU. The order of its gates is update, reset, hidden. The reset
    gate is applied before or after the state is multiplied by the weights.
    """
    of_input, of_state = cell.biases
    gates, inside = cell.weights.of_state(0, 2), cell.weights.of_state(2, 3)
    bias = cell.bias(cell.biases, 0, 2)
    resets_first = not cell.node.attribute("linear_before_reset", 0)
    inner = [cell.bias(parts, 2, 3) for parts in ([cell.biases] if resets_first else [(of_input,), (of_state,)])]

    def candidate(x: relax.Expr, hidden: relax.Expr, reset: relax.Expr) -> relax.Expr:
        if resets_first:
            return cell.sum(cell.sum(x, inside(cell.times(reset, hidden))), inner[0])
        behind = cell.sum(inside(hidden), inner[1])
        return cell.sum(cell.sum(x, inner[0]), cell.times(reset, behind))

    def step(x: relax.Expr, state: State) -> State:
        (hidden,) = state
        first = cell.made(relax.op.strided_slice(x, [1], [0], [2 * cell.size]))
        sums = cell.sum(cell.sum(first, gates(hidden)), bias)
        update, reset = (cell.of("logistic", cell.gate(sums, index)) for index in range(2))
        new = cell.of("tanh", candidate(cell.gate(x, 2), hidden, reset))
        rest = cell.made.apply(relax.op.subtract, 1.0, update)
        return (cell.sum(cell.times(rest, new), cell.times(update, hidden)),)

    return step


@dataclass(frozen=True)
class Kind:
    """A type of recurrent operator.

    Attributes:
        steps: returns the step function of a cell. All steps use the same constants.
        gates: the number of gates of a cell.
        states: the number of states of a cell.
        activations: the operator's default functions.
    """

    steps: Callable[[_Cell], Step]
    gates: int
    states: int
    activations: tuple[str, ...]


def _layer(node: Node, kind: Kind) -> tuple[Value, ...]:
    """Inputs: X `[steps, batch, inputs]`, W, R, B, sequence_lens, and the initial states `[directions, batch, hidden]`.
    Returns Y `[steps, directions, batch, hidden]`, and the states after the last step.
    """
    directions, width = directions_of(node, kind), extents_of(node)[-1]
    for index in (1, 2):
        node.data(index)  # raises an error if the weights depend on an input
    weights, recurrent = node.shape(1), node.shape(2)
    size = recurrent[-1] if len(recurrent) == 3 else 0
    shapes = [(len(directions), kind.gates * size, each) for each in (width, size)]
    fits = [weights, recurrent] == shapes
    node.require(fits, f"has weights {weights} and {recurrent}, which do not fit")
    dtypes = sorted({node.dtype(index) for index in (1, 2)})
    node.require_supported(dtypes == ["float32"], f"has weights of {', '.join(dtypes)}; only float32 can be compiled")
    made = Real(node.emit, node.expr(0))
    each = [_RealWeights(node, made, size, direction) for direction in range(len(directions))]
    return unrolled(node, kind, made, size, directions, each)


def unrolled(
    node: Node, kind: Kind, made: Real, size: int, directions: Sequence[bool], weights: Sequence[Weights]
) -> tuple[Value, ...]:
    """Returns the outputs of a layer. Each step is emitted separately.

    Args:
        made: the arithmetic of X.
        size: the size of the hidden state.
        directions, weights: for each direction, true if it processes the steps in reverse, and its weights.
    """
    steps, batch, width = extents_of(node)
    biases = node.data(3) if node.has(3) else np.zeros((len(directions), 2 * kind.gates * size), np.float32)
    fits = biases.shape == (len(directions), 2 * kind.gates * size)
    node.require(fits, f"has a bias {biases.shape}, which does not fit")
    node.require_supported(biases.dtype == np.float32, f"has a bias of {biases.dtype}; only float32 can be compiled")
    rows, runs = made(relax.op.reshape(made.x, (steps * batch, width))), []
    for index, is_backward in enumerate(directions):
        cell = _Cell(node, made, size, weights[index], (*biases[index].reshape(2, -1),))
        products = weights[index].of_input(rows)
        parts = [made(relax.op.strided_slice(products, [0], [t * batch], [(t + 1) * batch])) for t in range(steps)]
        initial = (len(directions), batch, size)
        state = tuple(_initial(cell, 5 + each, index, initial) for each in range(kind.states))
        runs.append(_run(kind.steps(cell), parts, state, is_backward))
    return _results(node, runs, (steps, batch, size))


def directions_of(node: Node, kind: Kind) -> tuple[bool, ...]:
    """Returns true for each direction that processes the steps in reverse. Requires that the cell has its default
    functions and options.
    """
    named = node.attribute("direction", "forward")
    node.require(named in _DIRECTIONS, f"has the unknown direction {shortened(named)}")
    directions = _DIRECTIONS[named]
    functions = tuple(str(each).capitalize() for each in node.attribute("activations", ()))
    if functions not in ((), kind.activations * len(directions)):
        node.unsupported(f"has the functions {', '.join(functions[:6])}; {', '.join(kind.activations)} can be compiled")
    for name in ("clip", "input_forget", "layout"):
        if node.attribute(name, 0.0) != 0:
            node.unsupported(f"has the attribute {name}, with which it cannot be compiled")
    if node.has(_PEEPHOLES):
        node.unsupported("has peepholes", node.name(_PEEPHOLES))
    return directions


def extents_of(node: Node) -> tuple[int, int, int]:
    """Returns steps, batch and width."""
    float32(node)
    shape = node.shape(0)
    node.require(len(shape) == 3, f"has an input of shape {list(shape)}, not [steps, batch, inputs]")
    steps, batch, width = shape
    if steps > MOST_STEPS:
        node.unsupported(f"has {steps} steps; at most {MOST_STEPS} can be compiled")
    if node.has(_LENGTHS) and set(node.integers(_LENGTHS)) != {steps}:
        node.unsupported("has sequences whose lengths differ from its input's", node.name(_LENGTHS))
    return steps, batch, width


def _initial(cell: _Cell, index: int, direction: int, shape: tuple[int, ...]) -> relax.Expr:
    node = cell.node
    if not node.has(index):
        return node.literal(np.zeros(shape[1:], np.float32))
    float32(node, index)
    node.require(node.shape(index) == shape, f"has an initial state {list(node.shape(index))}, not {list(shape)}")
    own = cell.made(relax.op.strided_slice(node.expr(index), [0], [direction], [direction + 1]))
    return cell.made(relax.op.reshape(own, shape[1:]))


def _run(step: Step, parts: list[relax.Expr], state: State, is_backward: bool) -> tuple[list[relax.Expr], State]:
    """Returns the hidden state of each step, in the order of the input, and the state after the last step."""
    found: list[relax.Expr] = []
    for part in parts[::-1] if is_backward else parts:
        state = step(part, state)
        found.append(state[0])
    return found[::-1] if is_backward else found, state


def _results(node: Node, runs: list[tuple[list[relax.Expr], State]], shape: tuple[int, int, int]) -> tuple[Value, ...]:
    """Returns the outputs that the operator names, and None for the outputs that it omits."""
    steps, batch, size = shape

    def join_states(states: list[relax.Expr], part: str, *shape: int) -> relax.Expr:
        whole = states[0] if len(states) == 1 else node.emit(relax.op.concat(states, 0), part)
        return node.emit(relax.op.reshape(whole, shape), part)

    outputs = (*node.operator.outputs, "", "", "")
    results: list[Value] = [None]
    if outputs[0]:
        each = [join_states(found, "steps", steps, 1, batch, size) for found, _ in runs]
        results = [each[0] if len(each) == 1 else node.emit(relax.op.concat(each, 1))]
    for index, ends in enumerate(zip(*(state for _, state in runs), strict=True)):
        results.append(join_states(list(ends), "last", len(runs), batch, size) if outputs[1 + index] else None)
    return tuple(results)


LSTM = Kind(_lstm, 4, 2, ("Sigmoid", "Tanh", "Tanh"))
_GRU = Kind(_gru, 3, 1, ("Sigmoid", "Tanh"))

RECURRENT: dict[str, tuple[Convert, tuple[int, int]]] = {
    "LSTM": (partial(_layer, kind=LSTM), (3, 8)),
    "GRU": (partial(_layer, kind=_GRU), (3, 6)),
}
