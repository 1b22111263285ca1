"""Operators with a state: UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF, for int8 activations with 16-bit states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.model import Tensor
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.selection import sliced
from service.compiler.qnn import ops
from service.compiler.qnn.ops.recurrent import GATE_SCALE, integer_bits
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_GATES = QuantizedType("int16", (GATE_SCALE,))
# Indices of the inputs (tflite/kernels/lstm_shared.h). Each range of four belongs to the input, forget, cell and output
# gate.
_INPUT_WEIGHTS, _RECURRENT_WEIGHTS, _BIASES = range(1, 5), range(5, 9), range(12, 16)
_PEEPHOLES, _NORMS = range(9, 12), range(20, 24)
_PROJECTION, _PROJECTION_BIAS, _HIDDEN, _CELL = 16, 17, 18, 19
_HIDDEN_INTERMEDIATE = 4
_MOST_STEPS = 256  # each step is unrolled, and takes a third of a second to compile
_TANH = 4  # ActivationFunctionType in schema.fbs


def lstm(node: Node) -> relax.Expr:
    """Converts `[N, T, K]` to `[N, T, O]`, or `[T, N, K]` to `[T, N, O]` if the operator is time-major. The hidden
    state `[N, O]` int8 and the cell state `[N, C]` int16 are variables (`EvalInteger8x8_16` in
    tflite/kernels/lstm_eval.cc).

    The input's contribution to the gates is computed for all steps at once. Everything else is computed step by step.
    """
    return _Lstm(node).run()


class _Lstm:
    def __init__(self, node: Node) -> None:
        self.node = node
        for positions, what in ((_PEEPHOLES, "peepholes"), (_NORMS, "layer normalization")):
            if any(node.has_input(position) for position in positions):
                node.unsupported(
                    f"has {what}, which cannot be compiled",
                    hint="plain LSTMs, with or without projection, can be compiled",
                )
        shape = node.input(0).shape
        node.require(len(shape) == 3, f"has an input of shape {list(shape)}, not three dimensions", node.input(0))
        node.require(node.int_option("fused_activation_function") == _TANH, "has an activation other than tanh")
        self.time_major = bool(node.option("time_major"))
        self.steps, self.batch = shape[:2] if self.time_major else shape[1::-1]
        if self.steps > _MOST_STEPS:
            node.unsupported(f"has {self.steps} steps; at most {_MOST_STEPS} can be compiled", node.input(0))
        self.gates = [gate for gate in range(4) if gate or node.has_input(_INPUT_WEIGHTS[0])]
        self.cells = node.input(_INPUT_WEIGHTS[1]).shape[0]
        self.in_type, self.hidden_type, self.cell_type = (node.in_type(position) for position in (0, _HIDDEN, _CELL))
        if integer_bits(self.cell_type) is None:
            node.unsupported(f"has cells of {self.cell_type}; its kernel requires scales of 2**-15 to 2**-9")

    def run(self) -> relax.Expr:
        node = self.node
        seen = self._input_sums()
        recurrent, recurrent_type = self._stacked(_RECURRENT_WEIGHTS)
        width = len(self.gates) * self.cells
        nothing = relax.const(np.zeros(width, np.int32))
        hidden, cell = (self._rows(position) for position in (_HIDDEN, _CELL))
        clip = self._clip("cell_clip", self.cell_type)
        made: list[relax.Expr] = []
        for step in range(self.steps):
            sums = node.emit(
                ops.dense(hidden, recurrent, nothing, self.hidden_type, recurrent_type), f"recurrent_{step}"
            )
            scales = _accumulated(self.hidden_type, recurrent_type)
            gates = node.emit(ops.rescale(sums, self._step(seen, step, width), scales, _GATES), f"gates_{step}")
            cell = node.emit(ops.lstm_cell(gates, cell, self.cell_type, clip=clip), f"cell_{step}")
            hidden = self._output(gates, cell, step)
            made.append(hidden)
        node.keep(_HIDDEN, self._shaped(hidden, _HIDDEN))
        node.keep(_CELL, self._shaped(cell, _CELL))
        return self._join_steps(made)

    def _input_sums(self) -> relax.Expr:
        """Returns the inputs' contribution to the gates, including biases: one row for each step."""
        node = self.node
        weights, weight_type = self._stacked(_INPUT_WEIGHTS)
        bias = np.concatenate([self._bias(_BIASES[gate], self.cells) for gate in self.gates])
        depth = node.input(0).shape[2]
        rows = node.emit(relax.op.reshape(node.expr(0), (self.steps * self.batch, depth)), "rows")
        sums = node.emit(ops.dense(rows, weights, relax.const(bias), self.in_type, weight_type), "sums")
        return node.emit(ops.rescale(sums, None, _accumulated(self.in_type, weight_type), _GATES), "seen")

    def _step(self, seen: relax.Expr, step: int, width: int) -> relax.Expr:
        if self.time_major or self.batch == 1:
            begin, end = [step * self.batch, 0], [(step + 1) * self.batch, width]
            return seen if self.steps == 1 else sliced(self.node, seen, begin, end, f"seen_{step}")
        cube = self.node.emit(relax.op.reshape(seen, (self.batch, self.steps, width)), f"cube_{step}")
        part = sliced(self.node, cube, [0, step, 0], [self.batch, step + 1, width], f"part_{step}")
        return self.node.emit(relax.op.reshape(part, (self.batch, width)), f"seen_{step}")

    def _output(self, gates: relax.Expr, cell: relax.Expr, step: int) -> relax.Expr:
        """Returns the step's output. If the operator has projection weights, the output is projected."""
        node = self.node
        shown_type = self._shown_type()
        shown = node.emit(ops.lstm_output(gates, cell, self.cell_type, shown_type), f"shown_{step}")
        if not node.has_input(_PROJECTION):
            node.require(self.cells == self._width(), f"has {self.cells} cells for an output of {self._width()}")
            return shown
        weights = node.input(_PROJECTION)
        weight_type = self._weight_type(weights, (self._width(), self.cells))
        bias = self._bias(_PROJECTION_BIAS, self._width())
        call = ops.dense(shown, node.constant(_PROJECTION), relax.const(bias), shown_type, weight_type)
        sums = node.emit(call, f"projected_{step}")
        clip = self._clip("proj_clip", node.out_type())
        low, high = (-clip, clip) if clip else (-128, 127)
        out_type = QuantizedType(
            "int8", self.hidden_type.scales, self.hidden_type.zero_points, storage_min=low, storage_max=high
        )
        return node.emit(ops.rescale(sums, None, _accumulated(shown_type, weight_type), out_type), f"output_{step}")

    def _shown_type(self) -> QuantizedType:
        """Returns the quantization of logistic(output) * tanh(cell), from an intermediate tensor.

        Before a projection, the kernel negates the zero point, both when it stores this product and when it reads it
        (measured on LiteRT 2.3.0). The result differs only if a value saturates.
        """
        node = self.node
        positions = node.operator.intermediates
        node.require(
            len(positions) > _HIDDEN_INTERMEDIATE,
            f"has {len(positions)} intermediate tensors; it needs {_HIDDEN_INTERMEDIATE + 1}",
        )
        node.require(positions[_HIDDEN_INTERMEDIATE] >= 0, "has no intermediate tensor for the hidden values")
        tensor = node.model.tensors[positions[_HIDDEN_INTERMEDIATE]]
        found = node.per_tensor(tensor)
        if not node.has_input(_PROJECTION):
            return found
        if found.zero_point == -128:
            node.unsupported(f"projects hidden values of {found}, whose zero point is at the end of its range", tensor)
        return QuantizedType("int8", found.scales, (-found.zero_point,))

    def _width(self) -> int:
        return self.node.input(_RECURRENT_WEIGHTS[1]).shape[-1]

    def _rows(self, index: int) -> relax.Expr:
        """Returns a state as `[N, …]`. In the file, the batch dimension may be missing."""
        tensor, width = self.node.input(index), self._width() if index == _HIDDEN else self.cells
        self.node.require(
            math.prod(tensor.shape) == self.batch * width,
            f"has a state of shape {list(tensor.shape)}, not {[self.batch, width]}",
            tensor,
        )
        x = self.node.expr(index)
        shape = (self.batch, width)
        return x if tensor.shape == shape else self.node.emit(relax.op.reshape(x, shape), f"state_{index}")

    def _shaped(self, x: relax.Expr, index: int) -> relax.Expr:
        shape = self.node.input(index).shape
        return x if len(shape) == 2 else self.node.emit(relax.op.reshape(x, shape), f"left_{index}")

    def _join_steps(self, made: Sequence[relax.Expr]) -> relax.Expr:
        node, width = self.node, self._width()
        shape = (1, self.batch, width) if self.time_major else (self.batch, 1, width)
        each = [node.emit(relax.op.reshape(x, shape), f"step_{step}") for step, x in enumerate(made)]
        if len(each) == 1:
            return each[0]
        return node.emit(relax.op.concat(each, axis=0 if self.time_major else 1))

    def _stacked(self, positions: Sequence[int]) -> tuple[relax.Expr, QuantizedType]:
        """Returns the weights of all gates, stacked along the rows. Each gate has its own scale."""
        node = self.node
        tensors = [node.input(positions[gate]) for gate in self.gates]
        depth = tensors[-1].shape[-1]
        scales = [self._weight_type(tensor, (self.cells, depth)).scale for tensor in tensors]
        node.reserve(len(tensors) * self.cells * depth)
        data = np.concatenate([node.data(positions[gate]) for gate in self.gates])
        by_row = tuple(np.repeat(scales, self.cells).tolist())
        return relax.const(data), QuantizedType("int8", by_row, (0,) * len(by_row), axis=0)

    def _weight_type(self, tensor: Tensor, shape: tuple[int, ...]) -> QuantizedType:
        node = self.node
        node.require(tensor.shape == shape, f"has weights of shape {list(tensor.shape)}, not {list(shape)}", tensor)
        node.require(tensor.dtype == "int8", f"has weights of {tensor.dtype}, not int8", tensor)
        weight_type = node.per_tensor(tensor)
        if weight_type.zero_point:
            node.unsupported(f"has the weights {tensor.label} of {weight_type}, whose zero point is not 0", tensor)
        return weight_type

    def _bias(self, index: int, count: int) -> Array:
        return _bias(self.node, index, count)

    def _clip(self, option: str, quantized: QuantizedType) -> int:
        """Returns the stored value to which a state is clamped, or 0 if it is not clamped
        (`PopulateQuantizedLstmParams8x8_16`).
        """
        bound = float(cast(float, self.node.option(option)))
        self.node.require(
            math.isfinite(bound) and bound >= 0, f"has {option} {bound}, which must be finite and at least 0"
        )
        most = {"int8": 127, "int16": 32767}[quantized.storage]
        return int(min(np.float32(bound) / np.float32(quantized.scale), np.float32(most)))


def _bias(node: Node, index: int, count: int) -> Array:
    """Returns an int32 bias, or zeros if the file omits it."""
    if not node.has_input(index):
        return np.zeros(count, np.int32)
    tensor = node.input(index)
    node.require(
        tensor.dtype == "int32" and tensor.shape == (count,),
        f"has a bias of {tensor.dtype} {list(tensor.shape)}, not int32 {[count]}",
        tensor,
    )
    return node.data(index)


def _accumulated(in_type: QuantizedType, weight_type: QuantizedType) -> QuantizedType:
    """Returns the type of the sums of products. The scale of this type is a float32 product, as in the kernels'
    `Prepare`.
    """
    scales = tuple(float(np.float32(each) * np.float32(in_type.scale)) for each in weight_type.scales)
    return QuantizedType("int32", scales, (0,) * len(scales), axis=None if weight_type.axis is None else 1)


# SVDF: indices of the inputs (tflite/kernels/svdf.cc).
_FEATURE, _TIME, _UNIT_BIAS, _PAST = 1, 2, 3, 4


def svdf(node: Node) -> relax.Expr:
    """Converts SVDF, `[N, K]` -> `[N, U]`. A variable, `[N, F * M]` int16, contains the past features of each filter.
    The filter's feature of the input is appended to them. The weighted sums of the features over time are added over
    the filters of a unit (`EvalIntegerSVDF` in reference/svdf.h). The activation must be RELU, for which the kernel
    only saturates (tflite/kernels/svdf.cc).
    """
    if node.activation() != "RELU":
        node.unsupported(f"has the fused activation {node.activation()}; its kernel requires RELU")
    in_type, past_type, out_type = node.in_type(0), node.in_type(_PAST), node.out_type()
    batch, depth = _matrix(node, 0)
    filters, feature_depth = _matrix(node, _FEATURE)
    time_filters, memory = _matrix(node, _TIME)
    rank = node.int_option("rank", least=1)
    node.require(
        feature_depth == depth and time_filters == filters and filters % rank == 0,
        "has weights whose shapes do not fit its input or its rank",
    )
    node.require(
        (node.input(_FEATURE).dtype, node.input(_TIME).dtype) == ("int8", "int16"),
        "has weights that are not int8 and int16",
    )
    feature_type, time_type = node.in_type(_FEATURE), node.in_type(_TIME)
    if feature_type.zero_point:
        node.unsupported(f"has weights of {feature_type}, whose zero point is not 0", node.input(_FEATURE))

    nothing = relax.const(np.zeros(filters, np.int32))
    sums = node.emit(ops.dense(node.expr(0), node.constant(_FEATURE), nothing, in_type, feature_type), "feature_sums")
    feature = node.emit(ops.rescale(sums, None, _accumulated(in_type, feature_type), past_type), "features")
    newest = node.emit(relax.op.reshape(feature, (batch, filters, 1)), "newest")
    state = node.input(_PAST)
    node.require(
        math.prod(state.shape) == batch * filters * memory,
        f"has a state of shape {list(state.shape)}, not {[batch, filters * memory]}",
        state,
    )
    past = node.emit(relax.op.reshape(node.expr(_PAST), (batch, filters, memory)), "past")
    if memory > 1:
        older = sliced(node, past, [0, 0, 0], [batch, filters, memory - 1], "older")
        past = node.emit(relax.op.concat([older, newest], axis=2), "memory")
    else:
        past = newest
    _shift(node, past, (batch, filters, memory))
    bias = relax.const(_bias(node, _UNIT_BIAS, filters // rank))
    weighted = node.emit(ops.time_dense(past, node.constant(_TIME), bias, past_type, time_type), "weighted")
    return node.emit(ops.rescale(weighted, None, _accumulated(past_type, time_type), out_type))


def _shift(node: Node, past: relax.Expr, shape: tuple[int, int, int]) -> None:
    """Removes the oldest features, which makes room for the next."""
    batch, filters, memory = shape
    empty = relax.const(np.zeros((batch, filters, 1), np.int16))
    rest = [sliced(node, past, [0, 0, 1], list(shape), "rest")] if memory > 1 else []
    shifted = node.emit(relax.op.concat([*rest, empty], axis=2), "shifted") if rest else empty
    node.keep(_PAST, node.emit(relax.op.reshape(shifted, node.input(_PAST).shape), "left"))


def _matrix(node: Node, index: int) -> tuple[int, int]:
    tensor = node.input(index)
    node.require(len(tensor.shape) == 2, f"has an operand of shape {list(tensor.shape)}, not a matrix", tensor)
    return tensor.shape[0], tensor.shape[1]
