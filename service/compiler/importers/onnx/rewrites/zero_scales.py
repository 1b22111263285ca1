"""Replaces scales that are not positive.

Quantizers write scales of 0 for channels whose values are all zero ("dead" channels). Stored values with such a scale
represent 0. Here these stored values are replaced by zero points with a positive scale. In ONNX Runtime, a sum of
products with such values is scaled by 0 as well, including its bias (`multiplier` in mlas/lib/qgemm.h,
`RequantizeOutput`), so the stored bias of such a channel becomes 0, too.

ONNX Runtime's quantizer of 4 bits writes negative scales for blocks whose largest value is positive. (q - z) * -s
equals (~q - ~z) * s exactly, where ~ is the complement within the bits of the stored type.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.compiler.importers.onnx.model import Model, Tensor
from service.compiler.importers.onnx.rewriting import DEQUANTIZE
from service.compiler.importers.qdq import Operator
from service.compiler.qnn.types import STORAGE_RANGES
from service.core.models.arrays import Array

# Operators that multiply by weights: the input indices of weights, scales and zero points, and the input index of the
# bias.
_WEIGHTS = (3, 4, 5)
_BIASES = {"QLinearConv": 8, "QLinearMatMul": None, "com.microsoft.QGemm": 6}


def without_zero_scales(model: Model) -> Model:
    """Returns `model` with constant scales that are 0 or negative replaced by positive ones.

    Requires: a graph that `graph.check_graph` accepts.
    Ensures: a graph that `check_graph` would accept, and that computes the same.
    """
    constants = dict(model.constants)
    operators = tuple(_positive(operator, constants) for operator in model.operators)
    return replace(model, operators=operators, constants=constants)


def _positive(operator: Operator, constants: dict[str, Tensor]) -> Operator:
    if operator.op_type == DEQUANTIZE:
        axis, size = operator.attributes.get("axis", 1), operator.attributes.get("block_size", 0)
        return _replaced(_complemented(operator, constants, axis, size), constants, (0, 1, 2), axis, size)
    if operator.op_type not in _BIASES:
        return operator
    by_rows = operator.op_type == "QLinearConv" or bool(operator.attributes.get("transB", 0))
    return _replaced(operator, constants, _WEIGHTS, 0 if by_rows else -1, 0, _BIASES[operator.op_type])


def _complemented(operator: Operator, constants: dict[str, Tensor], axis: object, block_size: object) -> Operator:
    """Returns a DequantizeLinear without negative scales, if all of its inputs are constant."""
    parts = [constants.get(name) for name in operator.inputs[:3] if name]
    data = [part.data for part in parts if part is not None and part.data is not None]
    if len(parts) < 2 or len(data) != len(parts) or not isinstance(axis, int) or not isinstance(block_size, int):
        return operator
    tensor, scale = parts[0], parts[1]
    if tensor is None or scale is None or scale.dtype != "float32" or not (data[1] < 0).any():
        return operator
    negative, points = data[1] < 0, data[2] if len(data) == 3 else np.zeros(data[1].shape, data[0].dtype)
    spread = _spread(negative, tensor.shape, axis, block_size)
    if spread is None or points.size != negative.size or tensor.dtype not in STORAGE_RANGES:
        return operator
    ones = data[0].dtype.type(sum(STORAGE_RANGES[tensor.dtype]))  # the sum of a value and its complement
    inputs = [
        _added(constants, tensor, np.where(spread, ones - data[0], data[0])),
        _added(constants, scale, np.asarray(np.abs(data[1]))),
        _added(constants, tensor, np.where(negative.reshape(points.shape), ones - points, points)),
    ]
    return replace(operator, inputs=tuple(inputs))


def _replaced(
    operator: Operator,
    constants: dict[str, Tensor],
    positions: tuple[int, int, int],
    axis: object,
    block_size: object,
    bias: int | None = None,
) -> Operator:
    """Returns `operator` with new constants if it has scales of 0 and all affected values are constant."""
    names = [operator.inputs[position] if position < len(operator.inputs) else "" for position in positions]
    tensor, scale = (constants.get(name) for name in names[:2])
    if tensor is None or tensor.data is None or scale is None or scale.data is None or scale.dtype != "float32":
        return operator
    zeros = scale.data == 0
    if not zeros.any() or not isinstance(axis, int) or not isinstance(block_size, int):
        return operator
    points: Array | None = np.zeros(zeros.shape, tensor.data.dtype)
    if names[2]:
        points = constants[names[2]].data if names[2] in constants else None
    if points is None:
        return operator
    dead, nothing = (_spread(each, tensor.shape, axis, block_size) for each in (zeros, points))
    if dead is None or nothing is None:
        return operator
    positive = scale.data[scale.data > 0]
    step = positive.max() if positive.size else np.float32(1)
    inputs = list(operator.inputs)
    inputs[positions[0]] = _added(constants, tensor, np.where(dead, nothing, tensor.data).astype(tensor.data.dtype))
    inputs[positions[1]] = _added(constants, scale, np.where(zeros, step, scale.data).astype(np.float32), zeros)
    if bias is not None and bias < len(inputs) and inputs[bias]:
        sums = constants.get(inputs[bias])
        if sums is None or sums.data is None or zeros.size not in (1, sums.data.size):
            return operator
        inputs[bias] = _added(constants, sums, np.where(zeros.reshape(-1), 0, sums.data.reshape(-1)).astype(np.int32))
    return replace(operator, inputs=tuple(inputs))


def _spread(values: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array | None:
    """Returns one value for each element of a tensor. `values` has one value for all, one for each index of an axis, or
    one for each block.
    """
    if values.size == 1:
        return np.broadcast_to(values.reshape(()), shape)
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    if block_size > 0:
        if values.ndim != len(shape):
            return None
        values = np.repeat(values, block_size, axis)[(slice(None),) * axis + (slice(shape[axis]),)]
    elif values.ndim == 1:
        values = values.reshape(-1, *[1] * (len(shape) - axis - 1))
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        return None


def _added(constants: dict[str, Tensor], like: Tensor, data: Array, was_zero: Array | None = None) -> str:
    """Adds a constant with the dtype of `like`, and returns its name."""
    name = f"{like.name}/positive"
    while name in constants:
        name += "'"
    constants[name] = Tensor(name, like.dtype, data.shape, data, was_zero=was_zero)
    return name
