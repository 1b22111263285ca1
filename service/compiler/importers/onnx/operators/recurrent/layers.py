"""LSTM, GRU and RNN of real values, unrolled into their steps.

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
from service.compiler.importers.onnx.operators.recurrent.gates import Function, functions_of
from service.compiler.importers.onnx.operators.recurrent.lengths import Lengths, lengths_of
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.core.models.arrays import Array

MOST_STEPS = 256
# For each direction: true if it processes the steps in reverse.
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_PEEPHOLES = 7
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
        functions: the functions of the gates.
        peepholes: of an LSTM: the factors of the cell in the input, output and forget gate, float32 `[3, size]`; None
            if it has none.
    """

    node: Node
    made: Real
    size: int
    weights: Weights
    biases: tuple[Array, Array]
    functions: tuple[Function, ...]
    peepholes: Array | None = None

    def bias(self, parts: tuple[Array, ...], first: int, last: int) -> relax.Constant:
        """Returns the sum of the elements `parts` of `biases`, for gates `first` to `last`."""
        total: Array = np.add.reduce(parts)
        return self.node.literal(total[first * self.size : last * self.size])

    def gate(self, x: relax.Expr, index: int) -> relax.Expr:
        """Returns the columns of one gate."""
        bounds = [index * self.size], [(index + 1) * self.size]
        return self.made(relax.op.strided_slice(x, [1], *bounds))

    def of(self, function: int, x: relax.Expr) -> relax.Expr:
        """Returns a function of `x`, limited to `clip` if the operator has that attribute."""
        clip = float(np.float32(self.node.attribute("clip", 0.0)))
        if clip > 0:
            x = self.made.apply(relax.op.maximum, self.made.apply(relax.op.minimum, x, clip), -clip)
        return self.functions[function](self.made, x)

    def sum(self, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return self.made.apply(relax.op.add, x, y)

    def times(self, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return self.made.apply(relax.op.multiply, x, y)


Step = Callable[[relax.Expr, State], State]  # (input * weights of all gates, state) -> next state


def _lstm(cell: _Cell) -> Step:
    """Returns the function that computes one step of an LSTM. The order of its gates is input, output, forget, cell.
    With `input_forget`, the forget gate is 1 less the input gate.
    """
    product, is_coupled = cell.weights.of_state(0, 4), bool(cell.node.attribute("input_forget", 0))
    peepholes = None if cell.peepholes is None else [cell.node.literal(each) for each in cell.peepholes]
    bias = cell.bias(cell.biases, 0, 4)
    apart = [cell.bias(cell.biases, index, index + 1) for index in range(4)] if peepholes else []

    def step(x: relax.Expr, state: State) -> State:
        hidden, memory = state
        sums = cell.sum(x, product(hidden))
        if peepholes is None:
            sums = cell.sum(sums, bias)

        def gate(index: int, function: int, cells: relax.Expr | None) -> relax.Expr:
            """Returns a gate. If the layer has peepholes, they see `cells`."""
            part = cell.gate(sums, index)
            if peepholes is not None:
                part = part if cells is None else cell.sum(part, cell.times(cells, peepholes[index]))
                part = cell.sum(part, apart[index])
            return cell.of(function, part)

        entering = gate(0, 0, memory)
        kept = cell.made.apply(relax.op.subtract, 1.0, entering) if is_coupled else gate(2, 0, memory)
        memory = cell.sum(cell.times(kept, memory), cell.times(entering, gate(3, 1, None)))
        return cell.times(gate(1, 0, memory), cell.functions[2](cell.made, memory)), memory

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
        update, reset = (cell.of(0, cell.gate(sums, index)) for index in range(2))
        new = cell.of(1, candidate(cell.gate(x, 2), hidden, reset))
        rest = cell.made.apply(relax.op.subtract, 1.0, update)
        return (cell.sum(cell.times(rest, new), cell.times(update, hidden)),)

    return step


def _rnn(cell: _Cell) -> Step:
    """Returns the function that computes one step of an RNN, whose only gate is its hidden state."""
    product, bias = cell.weights.of_state(0, 1), cell.bias(cell.biases, 0, 1)

    def step(x: relax.Expr, state: State) -> State:
        (hidden,) = state
        return (cell.of(0, cell.sum(cell.sum(x, bias), product(hidden))),)

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
    directions, width = directions_of(node), extents_of(node)[-1]
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
    functions = functions_of(node, len(directions), kind.activations)
    lengths = lengths_of(node, made, steps, batch)
    used, x = lengths.longest, made.x
    if used < steps:
        x = made(relax.op.strided_slice(x, [0], [0], [used]))
    rows, runs = made(relax.op.reshape(x, (used * batch, width))), []
    for index, is_backward in enumerate(directions):
        peepholes = _peepholes(node, len(directions), size)
        own = None if peepholes is None else peepholes[index]
        cell = _Cell(node, made, size, weights[index], (*biases[index].reshape(2, -1),), functions[index], own)
        products = weights[index].of_input(rows)
        is_turned = is_backward and lengths.constant is not None
        if is_turned:
            products = lengths.reverse(products)
        parts = [made(relax.op.strided_slice(products, [0], [t * batch], [(t + 1) * batch])) for t in range(used)]
        initial = (len(directions), batch, size)
        state = tuple(_initial(cell, 5 + each, index, initial) for each in range(kind.states))
        has_steps = bool(node.operator.outputs[0])
        is_reversed = is_backward and not is_turned
        found, state = _run(kind.steps(cell), parts, state, lengths, is_backward=is_reversed, has_steps=has_steps)
        if is_turned:
            whole = lengths.reverse(made(relax.op.concat(found, 0)))
            found = [made(relax.op.strided_slice(whole, [0], [t * batch], [(t + 1) * batch])) for t in range(used)]
        runs.append((found, state))
    return _results(node, runs, (used, batch, size), steps - used)


def _peepholes(node: Node, directions: int, size: int) -> Array | None:
    """Returns the peepholes `[directions, 3, size]` of an LSTM; None if it has none."""
    if not node.has(_PEEPHOLES):
        return None
    data = node.data(_PEEPHOLES)
    fits = data.shape == (directions, 3 * size) and data.dtype == np.float32
    node.require(fits, f"has peepholes {data.dtype} {list(data.shape)}, which do not fit", node.name(_PEEPHOLES))
    return data.reshape(directions, 3, size)


def directions_of(node: Node) -> tuple[bool, ...]:
    """Returns true for each direction that processes the steps in reverse."""
    named = node.attribute("direction", "forward")
    node.require(named in _DIRECTIONS, f"has the unknown direction {shortened(named)}")
    directions = _DIRECTIONS[named]
    if node.attribute("layout", 0):
        node.unsupported("has the attribute layout, with which it cannot be compiled")
    return directions


def extents_of(node: Node) -> tuple[int, int, int]:
    """Returns steps, batch and width."""
    float32(node)
    shape = node.shape(0)
    node.require(len(shape) == 3, f"has an input of shape {list(shape)}, not [steps, batch, inputs]")
    steps, batch, width = shape
    if steps > MOST_STEPS:
        node.unsupported(f"has {steps} steps; at most {MOST_STEPS} can be compiled")
    return steps, batch, width


def _initial(cell: _Cell, index: int, direction: int, shape: tuple[int, ...]) -> relax.Expr:
    node = cell.node
    if not node.has(index):
        return node.literal(np.zeros(shape[1:], np.float32))
    float32(node, index)
    node.require(node.shape(index) == shape, f"has an initial state {list(node.shape(index))}, not {list(shape)}")
    own = cell.made(relax.op.strided_slice(node.expr(index), [0], [direction], [direction + 1]))
    return cell.made(relax.op.reshape(own, shape[1:]))


def _run(
    step: Step, parts: list[relax.Expr], state: State, lengths: Lengths, *, is_backward: bool, has_steps: bool
) -> tuple[list[relax.Expr], State]:
    """Returns the hidden state of each step, in the order of the input, and the state after the last step.

    The state of a sample does not change in steps beyond its length, and the output of these steps is 0.

    Args:
        has_steps: true if the outputs of all steps are an output of the layer. As in ONNX Runtime, the hidden state of
            a sample whose steps are over is then 0 for the products, which matters if they are quantized together.
    """
    found: list[relax.Expr] = []
    order, hidden = range(len(parts)), state[0]
    for at in reversed(order) if is_backward else order:
        new = step(parts[at], (hidden, *state[1:]))
        state = tuple(lengths.selected(at, *pair) for pair in zip(new, state, strict=True))
        found.append(lengths.selected(at, new[0], None))
        hidden = found[-1] if has_steps and not is_backward else state[0]
    return found[::-1] if is_backward else found, tuple(lengths.selected(0, each, None) for each in state)


def _results(
    node: Node, runs: list[tuple[list[relax.Expr], State]], shape: tuple[int, int, int], rest: int
) -> tuple[Value, ...]:
    """Returns the outputs that the operator names, and None for the outputs that it omits.

    Args:
        rest: the number of steps after those of `runs`, whose outputs are 0.
    """
    steps, batch, size = shape

    def join_states(states: list[relax.Expr], part: str, *shape: int) -> relax.Expr:
        whole = states[0] if len(states) == 1 else node.emit(relax.op.concat(states, 0), part)
        return node.emit(relax.op.reshape(whole, shape), part)

    outputs = (*node.operator.outputs, "", "", "")
    results: list[Value] = [None]
    if outputs[0]:
        each = [join_states(found, "steps", steps, 1, batch, size) for found, _ in runs]
        whole = each[0] if len(each) == 1 else node.emit(relax.op.concat(each, 1))
        results = [node.emit(relax.op.nn.pad(whole, [0, rest, 0, 0, 0, 0, 0, 0])) if rest else whole]
    for index, ends in enumerate(zip(*(state for _, state in runs), strict=True)):
        results.append(join_states(list(ends), "last", len(runs), batch, size) if outputs[1 + index] else None)
    return tuple(results)


LSTM = Kind(_lstm, 4, 2, ("Sigmoid", "Tanh", "Tanh"))
_GRU = Kind(_gru, 3, 1, ("Sigmoid", "Tanh"))
_RNN = Kind(_rnn, 1, 1, ("Tanh",))

RECURRENT: dict[str, tuple[Convert, tuple[int, int]]] = {
    "LSTM": (partial(_layer, kind=LSTM), (3, 8)),
    "GRU": (partial(_layer, kind=_GRU), (3, 6)),
    "RNN": (partial(_layer, kind=_RNN), (3, 6)),
}
