"""DynamicQuantizeLSTM (com.microsoft): an LSTM of real values whose products multiply stored values.

Each product quantizes all of its rows with one scale and one zero point, computes integer sums, and scales them
(`ComputeGemm` in core/providers/cpu/rnn/rnn_helpers.cc). The rows are the inputs of all steps and samples, or the
hidden states of all samples. The rest is the arithmetic of an LSTM, so the results equal those of ONNX Runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.dynamic import quantized_dynamically, sums_of_rows
from service.compiler.importers.onnx.operators.real import Convert
from service.compiler.importers.onnx.operators.recurrent.layers import (
    LSTM,
    Product,
    directions_of,
    extents_of,
    unrolled,
)
from service.compiler.importers.onnx.operators.recurrent.lengths import LENGTHS
from service.compiler.importers.real import Real
from service.core.models.arrays import Array

_SCALES = {1: 8, 2: 10}  # input index of the weights -> that of their scale; the zero point is the next input


@dataclass(frozen=True)
class _Matrix:
    """Weights `[rows, columns]` of 8 bits with one zero point. They have one scale, or one for each column."""

    stored: Array
    scales: Array
    point: int

    def product(self, node: Node, made: Real) -> Product:
        multiply = sums_of_rows(node, made, self.stored, self.point)
        scales = node.literal(self.scales)

        def scaled(rows: relax.Expr) -> relax.Expr:
            stored, scale, point = quantized_dynamically(node, rows, "float32", together=True)
            factor = made(relax.op.multiply(scale, scales))
            return made(relax.op.multiply(made(relax.op.astype(multiply(stored, point), "float32")), factor))

        return scaled


@dataclass(frozen=True)
class _StoredWeights:
    """The weights of one direction."""

    node: Node
    made: Real
    inputs: _Matrix
    recurrent: _Matrix

    @property
    def of_input(self) -> Product:
        return self.inputs.product(self.node, self.made)

    def of_state(self, _first: int, _last: int) -> Product:
        return self.recurrent.product(self.node, self.made)


def dynamic_quantize_lstm(node: Node) -> tuple[Value, ...]:
    """Inputs: X, W `[directions, inputs, 4 * hidden]`, R `[directions, hidden, 4 * hidden]`, B, sequence_lens,
    initial_h, initial_c, P, W_scale, W_zero_point, R_scale, R_zero_point. Returns the outputs of an LSTM.
    """
    directions, width = directions_of(node), extents_of(node)[-1]
    if node.has(LENGTHS):
        node.data(LENGTHS)  # the steps that are quantized together must be known
    recurrent = node.shape(2)
    size = recurrent[1] if len(recurrent) == 3 else 0
    made = Real(node.emit, node.expr(0))
    found = [_matrices(node, index, (len(directions), rows, 4 * size)) for index, rows in ((1, width), (2, size))]
    weights = [_StoredWeights(node, made, *pair) for pair in zip(*found, strict=True)]
    return unrolled(node, LSTM, made, size, directions, weights)


def _matrices(node: Node, index: int, shape: tuple[int, int, int]) -> list[_Matrix]:
    """Returns the weights of each direction in the input `index`, which must have the given shape."""
    stored, scales, points = node.data(index), node.data(_SCALES[index]), node.data(_SCALES[index] + 1)
    node.require(stored.shape == shape, f"has weights {list(stored.shape)}, not {list(shape)}", node.name(index))
    dtype = stored.dtype
    node.require(dtype.name in ("int8", "uint8"), f"has weights of {dtype}, not of 8 bits", node.name(index))
    node.require(scales.dtype == np.float32, f"has scales of {scales.dtype}, not float32", node.name(_SCALES[index]))
    node.require(points.dtype == dtype, f"has weights of {dtype}, but zero points of {points.dtype}")
    allowed = (shape[:1], (shape[0], shape[2]))
    node.require(scales.shape in allowed, f"has scales {list(scales.shape)}, which do not fit {list(shape)}")
    node.require(points.shape == scales.shape, f"has zero points {list(points.shape)} for scales {list(scales.shape)}")
    rows = points.reshape(shape[0], -1)
    is_one = bool((rows == rows[:, :1]).all())
    node.require(is_one, "has zero points that differ between columns", node.name(_SCALES[index] + 1))
    each = zip(stored, scales.reshape(shape[0], 1, -1), rows[:, 0], strict=True)
    return [_Matrix(matrix, scale, int(point)) for matrix, scale, point in each]


QUANTIZED: dict[str, tuple[Convert, tuple[int, int]]] = {
    "com.microsoft.DynamicQuantizeLSTM": (dynamic_quantize_lstm, (12, 12)),
}
