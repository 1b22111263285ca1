"""UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM of real values (tflite/kernels/lstm_eval.cc)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from tvm import relax

from service.compiler.importers.real import Real, normalize
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.sequences import products
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_EPSILON = 1e-8  # kNormalizationConstant in tflite/kernels/internal/reference/portable_tensor_utils.cc
_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_AUXILIARY, _AUXILIARY_WEIGHTS = 39, range(40, 48)


@dataclass(frozen=True)
class Places:
    """The indices of the inputs of one direction. Each range of four belongs to the input, forget, cell and output
    gate; peepholes belong to the input, forget and output gate.
    """

    inputs: range
    recurrent: range
    peepholes: range
    biases: range
    projection: int
    projection_bias: int
    hidden: int
    cell: int
    norms: range = range(0)


FORWARD = Places(range(1, 5), range(5, 9), range(9, 12), range(12, 16), 16, 17, 18, 19, range(20, 24))
_BOTH = (
    Places(range(1, 5), range(5, 9), range(9, 12), range(12, 16), 16, 17, 35, 36),
    Places(range(18, 22), range(22, 26), range(26, 29), range(29, 33), 33, 34, 37, 38),
)


def unidirectional(node: Node) -> relax.Expr:
    time_major = bool(node.option("time_major"))
    if node.option("diagonal_recurrent_tensors"):
        node.unsupported("has diagonal recurrent weights, which cannot be compiled")
    steps = products.steps_of(node, node.expr(0), time_major=time_major)
    return products.join_steps(node, Layer(node, FORWARD, shape_of(steps[0])[0]).run(steps), time_major=time_major)


def bidirectional(node: Node) -> list[relax.Expr]:
    """Converts BIDIRECTIONAL_SEQUENCE_LSTM. If there is an auxiliary input without weights, the backward layer reads it
    instead of the input (tflite/kernels/bidirectional_sequence_lstm.cc).
    """
    time_major = bool(node.option("time_major"))
    if any(node.has_input(position) for position in _AUXILIARY_WEIGHTS):
        node.unsupported("has weights for an auxiliary input, which cannot be compiled")
    sources = [0, _AUXILIARY if node.has_input(_AUXILIARY) else 0]
    outputs = []
    for source, places, is_backward in zip(sources, _BOTH, (False, True), strict=True):
        steps = products.steps_of(node, node.expr(source), time_major=time_major)
        found = Layer(node, places, shape_of(steps[0])[0]).run(steps[::-1] if is_backward else steps)
        outputs.append(products.join_steps(node, found[::-1] if is_backward else found, time_major=time_major))
    return products.merge_directions(node, *outputs)


class Layer:
    """One direction of an LSTM."""

    def __init__(self, node: Node, places: Places, rows: int) -> None:
        """`rows` is the batch size."""
        self._node, self._places, self._rows = node, places, rows
        self._gates = [gate for gate in range(4) if gate or node.has_input(places.inputs[_INPUT])]
        self._size = node.input(places.inputs[_FORGET]).shape[0]
        self._width = node.input(places.recurrent[_FORGET]).shape[-1]
        self._of_input = products.product(node, [places.inputs[gate] for gate in self._gates])
        self._of_hidden = products.product(node, [places.recurrent[gate] for gate in self._gates])
        self._activation = products.activation(node)
        self._is_normalized = any(node.has_input(position) for position in places.norms)
        self._biases = {gate: self._vector(places.biases[gate], self._size) for gate in self._gates}
        peepholes = dict(zip((_INPUT, _FORGET, _OUTPUT), places.peepholes, strict=True))
        self._peepholes = {
            gate: self._constant(position, self._size)
            for gate, position in peepholes.items()
            if gate in self._gates and node.has_input(position)
        }
        self._norms = {
            gate: self._constant(places.norms[gate], self._size) for gate in self._gates if self._is_normalized
        }
        self._projection = None
        if node.has_input(places.projection):
            self._projection = products.product(node, [places.projection])
        else:
            node.require(self._size == self._width, f"has {self._size} cells for an output of {self._width}")

    def run(self, steps: Sequence[relax.Expr]) -> list[relax.Expr]:
        """Returns the output `[N, O]` of each step, and keeps the last states."""
        node, places = self._node, self._places
        hidden = products.state(node, places.hidden, self._rows, self._width)
        cell = products.state(node, places.cell, self._rows, self._size)
        found = []
        for step in steps:
            hidden, cell = self._step(step, hidden, cell)
            found.append(hidden)
        products.keep(node, places.hidden, hidden)
        products.keep(node, places.cell, cell)
        return found

    def _step(self, x: relax.Expr, hidden: relax.Expr, cell: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
        node = self._node
        seen = self._of_input(x)
        if not self._is_normalized:
            bias = relax.const(np.concatenate([self._biases[gate] for gate in self._gates]))
            seen = node.emit(relax.op.add(seen, bias), "biased")
        sums = node.emit(relax.op.add(seen, self._of_hidden(hidden)), "sums")
        forget = self._gate(sums, _FORGET, cell)
        candidate = self._activation(self._sum(sums, _CELL, None))
        if _INPUT in self._gates:
            entering = self._gate(sums, _INPUT, cell)
        else:
            entering = node.emit(relax.op.subtract(relax.const(np.array(1, np.float32)), forget), "entering")
        kept = node.emit(relax.op.multiply(forget, cell), "kept")
        cell = node.emit(relax.op.add(kept, node.emit(relax.op.multiply(entering, candidate), "new")), "cell")
        cell = self._clipped(cell, "cell_clip")
        leaving = self._gate(sums, _OUTPUT, cell)
        shown = node.emit(relax.op.multiply(leaving, self._activation(cell)), "hidden")
        return (shown if self._projection is None else self._projected(shown)), cell

    def _projected(self, shown: relax.Expr) -> relax.Expr:
        assert self._projection is not None
        made = self._projection(shown)
        if self._node.has_input(self._places.projection_bias):
            bias = self._constant(self._places.projection_bias, self._width)
            made = self._node.emit(relax.op.add(made, bias), "projected")
        return self._clipped(made, "proj_clip")

    def _gate(self, sums: relax.Expr, gate: int, cell: relax.Expr) -> relax.Expr:
        return products.sigmoid(self._node, self._sum(sums, gate, cell))

    def _sum(self, sums: relax.Expr, gate: int, cell: relax.Expr | None) -> relax.Expr:
        """Returns the columns of a gate, with the contribution of the cell, and normalized."""
        node, first = self._node, self._gates.index(gate) * self._size
        x = node.emit(relax.op.strided_slice(sums, [1], [first], [first + self._size]), "gate")
        if cell is not None and gate in self._peepholes:
            x = node.emit(relax.op.add(x, node.emit(relax.op.multiply(cell, self._peepholes[gate]), "peek")), "gate")
        if not self._is_normalized:
            return x
        x = node.emit(normalize(Real(node.emit, x), [1], _EPSILON), "normal")
        scaled = node.emit(relax.op.multiply(x, self._norms[gate]), "scaled")
        return node.emit(relax.op.add(scaled, relax.const(self._biases[gate])), "gate")

    def _clipped(self, x: relax.Expr, option: str) -> relax.Expr:
        node, bound = self._node, float(cast(float, self._node.option(option)))
        node.require(math.isfinite(bound) and bound >= 0, f"has {option} {bound}, which must be finite and at least 0")
        if not bound:
            return x
        low, high = (relax.const(np.array(each, np.float32)) for each in (-bound, bound))
        return node.emit(relax.op.minimum(node.emit(relax.op.maximum(x, low), "low"), high), "clipped")

    def _constant(self, position: int, size: int) -> relax.Constant:
        return relax.const(self._vector(position, size))

    def _vector(self, position: int, size: int) -> Array:
        return products.vector(self._node, position, size)
