"""Recognizes dequantizations that the file writes out: a Cast of integers, and a product with their scale.

Some exporters store weights of 8 bits in this form, with the subtraction of a zero point in between. Computed while
importing, such weights would be four times as large as in the file. As a dequantization, they keep their bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.model import DEQUANTIZE_CONSTANT, ROUND, Model, Tensor
from service.compiler.importers.onnx.rewriting import DEQUANTIZE, OnnxGraph
from service.compiler.importers.qdq import Operator
from service.compiler.qnn.types import STORAGE_RANGES
from service.core.models.arrays import Array

_STORAGES = ("int4", "uint4", "int8", "uint8", "int16", "uint16")
_WIDENED = ("int16", "int32", "int64")  # types in which a zero point may be subtracted before the Cast to float32
_WHOLE = {"float16": 1 << 11, "bfloat16": 1 << 8}  # type -> up to this magnitude, all integers are numbers of the type
_MOVES = ("Gather", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_LEAST = 16  # a constant with fewer elements is computed while importing


@dataclass(frozen=True)
class _Partial:
    """Integers on the way to their real values.

    Attributes:
        stored: the constant as it is in the file.
        values: its elements after the file's transposes.
        is_real: true after the Cast to float32.
        point: the subtracted zero points, which broadcast to `values`; None if there are none.
    """

    stored: Tensor
    values: Array
    is_real: bool = False
    point: Array | None = None


def read_dequantizations(model: Model) -> Model:
    """Returns `model` with each product of converted integers and their scale replaced by a `DEQUANTIZE_CONSTANT`.

    Between the constant and the product, the file may have Casts, one Sub of a zero point, and a Transpose. Scale and
    zero point may have one value, or one for each index of one axis. Scales are positive. Operators that only the
    product read then have no reader, and a later pass removes them (`qdq.fuse`).

    Requires: a graph that `graph.check_graph` accepts.
    Ensures: a graph that `check_graph` would accept, and that computes the same.
    """
    reading = _Reading(model)
    operators = tuple(reading.replaced(operator) for operator in model.operators)
    found = replace(model, operators=operators, constants=reading.constants) if reading.found else model
    return _with_later_roundings(found)


def _with_later_roundings(model: Model) -> Model:
    """Returns `model` with dequantized constants rounded to 16 bits after operators that move elements, such as the
    Gather of a table's rows.

    Requires: as for `read_dequantizations`.
    """
    whole = OnnxGraph.whole(model)
    operators: list[Operator] = []
    for operator in model.operators:
        is_move = operator.op_type in _MOVES and bool(operator.inputs)
        rounding = whole.made_by(operator.inputs[0], ROUND) if is_move else None
        made = (DEQUANTIZE, DEQUANTIZE_CONSTANT)
        if rounding is None or whole.made_by(rounding.inputs[0], *made) is None:
            operators.append(operator)
            continue
        rows = whole.new_name(operator.outputs[0])
        operators.append(replace(operator, inputs=(rounding.inputs[0], *operator.inputs[1:]), outputs=(rows,)))
        operators.append(replace(rounding, inputs=(rows,), outputs=operator.outputs))
    return model if len(operators) == len(model.operators) else replace(model, operators=tuple(operators))


class _Reading:
    def __init__(self, model: Model) -> None:
        self.constants = dict(model.constants)
        self.names = {*self.constants, *(end.name for end in model.inputs)}
        self.names |= {name for operator in model.operators for name in operator.outputs}
        self.partials: dict[str, _Partial] = {}
        self.found = False

    def replaced(self, operator: Operator) -> Operator:
        """Returns the operator or its replacement, and records the integers that it converts."""
        if len(operator.outputs) != 1 or not 1 <= len(operator.inputs) <= 2:
            return operator
        if operator.op_type == "Mul":
            return self._dequantization(operator) or operator
        partial = self._after(operator)
        if partial is not None:
            self.partials[operator.outputs[0]] = partial
        return operator

    def _after(self, operator: Operator) -> _Partial | None:
        """Returns the integers after a Cast, a Transpose or a Sub."""
        partial = self._partial(operator.inputs[0])
        if partial is None:
            return None
        match operator.op_type:
            case "Cast":
                to = DTYPES.get(operator.attributes.get("to", 0), "")
                widens = not partial.is_real and to in _WIDENED and np.can_cast(partial.values.dtype, to)
                return replace(partial, is_real=to == "float32") if to == "float32" or widens else None
            case "Transpose":
                order = operator.attributes.get("perm", tuple(reversed(range(partial.values.ndim))))
                is_order = isinstance(order, tuple) and sorted(order) == list(range(partial.values.ndim))
                if not is_order or partial.point is not None:
                    return None
                return replace(partial, values=partial.values.transpose(order))
            case "Identity":
                return partial
            case str() if operator.op_type == ROUND:
                return partial if _is_exact(partial, operator.attributes.get("to", 0)) else None
            case "Reshape":
                shape = self._data(operator.inputs[1]) if len(operator.inputs) == 2 else None
                return None if shape is None or partial.point is not None else _reshaped(partial, shape)
            case "Sub":
                point = self._data(operator.inputs[1]) if len(operator.inputs) == 2 else None
                return None if point is None or partial.point is not None else replace(partial, point=point)
        return None

    def _partial(self, name: str) -> _Partial | None:
        tensor = self.constants.get(name)
        if tensor is None:
            return self.partials.get(name)
        if tensor.data is None or tensor.dtype not in _STORAGES or tensor.data.size < _LEAST:
            return None
        return _Partial(tensor, tensor.data)

    def _data(self, name: str) -> Array | None:
        tensor = self.constants.get(name)
        return tensor.data if tensor is not None else None

    def _dequantization(self, operator: Operator) -> Operator | None:
        for name, other in permutations(operator.inputs, 2):
            partial, scale = self.partials.get(name), self._data(other)
            if partial is None or scale is None or not partial.is_real or scale.dtype != np.float32:
                continue
            parameters = _parameters(partial, scale)
            if parameters is None:
                return None
            axis, scales, points = parameters
            stored, values = partial.stored, partial.values
            name = stored.name if values is stored.data else self._added(operator, "stored", values, stored.dtype)
            inputs = [name, self._added(operator, "scale", scales, "float32")]
            inputs.append(self._added(operator, "zero_point", points.astype(values.dtype), stored.dtype))
            self.found = True
            created = replace(operator, op_type=DEQUANTIZE_CONSTANT, inputs=tuple(inputs), attributes={"axis": axis})
            return replace(created, written=operator.op_type)
        return None

    def _added(self, operator: Operator, part: str, data: Array, dtype: str) -> str:
        name = f"{operator.outputs[0]}_{part}"
        while name in self.names:
            name += "'"
        self.names.add(name)
        self.constants[name] = Tensor(name, dtype, data.shape, np.ascontiguousarray(data))
        return name


def _is_exact(partial: _Partial, to: object) -> bool:
    """Returns true if the rounding to 16 bits of the type `to` does not change the integers."""
    largest = _WHOLE.get(DTYPES.get(to, "") if isinstance(to, int) else "", 0)
    values = partial.values.astype(np.int64)
    difference = values if partial.point is None else values - partial.point
    return bool((np.abs(difference) <= largest).all())


def _reshaped(partial: _Partial, shape: Array) -> _Partial | None:
    try:
        return replace(partial, values=partial.values.reshape([int(size) for size in shape.reshape(-1)]))
    except (ValueError, TypeError):
        return None


def _parameters(partial: _Partial, scale: Array) -> tuple[int, Array, Array] | None:
    """Returns the axis of the scales and zero points, and both, with one value for all or one for each index of the
    axis. Returns None if no DequantizeLinear has such parameters.
    """
    shape = partial.values.shape
    point = np.zeros((), np.float32) if partial.point is None else partial.point
    if max(scale.ndim, point.ndim) > len(shape) or not (np.isfinite(scale) & (scale > 0)).all():
        return None
    low, high = STORAGE_RANGES[partial.stored.dtype]
    if not ((point == np.rint(point)) & (low <= point) & (point <= high)).all():
        return None
    wide = [each.reshape((1,) * (len(shape) - each.ndim) + each.shape) for each in (scale, point)]
    axes = {axis for each in wide for axis, count in enumerate(each.shape) if count > 1}
    if len(axes) > 1 or any(each.shape[axis] not in (1, shape[axis]) for each in wide for axis in axes):
        return None
    axis = next(iter(axes), 0)
    extent = shape[axis] if axes else 1
    scales, points = (np.broadcast_to(each.reshape(-1), (extent,)) for each in wide)
    return axis, scales, points
