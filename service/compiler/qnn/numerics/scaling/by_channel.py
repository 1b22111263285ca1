"""Requantization between types with one scale for each index of an axis, except from the accumulators of a layer.

No runtime that a numerics mode reproduces stores activations in this way, so the modes define it by their formulas for
one scale: each index of the axis is requantized as if it were a tensor of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.qnn import ops
from service.compiler.qnn.expressions.facts import UNKNOWN
from service.compiler.qnn.expressions.requantization import Requantization
from service.compiler.qnn.expressions.tensors import TENSORS
from service.compiler.qnn.numerics.expressed import Chooses, Requantizes, bias_of
from service.compiler.qnn.numerics.formula import ChannelConstant, Formula, Index, Scalar, Table, clamped, pointwise
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_BYTES = {"int8": -128, "uint8": 0}  # dtype -> its smallest value


class ByChannel:
    """A requantization of each index of an axis by itself."""

    def __init__(self, formula: Formula) -> None:
        """`formula` requantizes tensors with one scale."""
        self._formula = formula
        self.summary = f"{formula.summary}, with s and z of the channel"

    def evaluate(self, operation: Operation, x: Array, bias: Array | None = None) -> Array:
        axis = _axis(operation)
        biases = _biases(operation, bias)
        results = [
            self._formula.evaluate(part, np.take(x, [index], axis), *added)
            for index, (part, added) in enumerate(zip(_parts(operation), biases, strict=True))
        ]
        return np.concatenate(results, axis)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, bias: relax.Expr | None = None
    ) -> relax.Expr:
        biases = list(_biases(operation, None if bias is None else bias_of(operation, bias)))
        scaling = self._scaling(operation, biases)
        if scaling is None and str(x.ty.dtype) in _BYTES and bias is None:
            return self._look_up(operation, builder, x)
        if scaling is None:
            return self._lower_parts(operation, builder, x, biases)
        in_type, out_type, axis = operation.quantized("in_type"), operation.quantized("out_type"), _axis(operation)

        def scale(value: Scalar, in_point: Scalar, out_point: Scalar, *channels: Scalar) -> Scalar:
            scaled = scaling.express(TENSORS, value.astype("int32") - in_point, channels)
            return clamped(scaled + out_point, out_type)

        points = [np.array(each.zero_points, np.int32) for each in (in_type, out_type)]
        constants = [ChannelConstant(each, axis if len(each) > 1 else None) for each in (*points, *scaling.arrays)]
        return pointwise(builder, "requantize", scale, [x], constants)

    def _scaling(self, operation: Operation, biases: Sequence[tuple[Array, ...]]) -> Requantization | None:
        """Returns one expression for all channels, or None if the formula has none."""
        found = []
        for part, added in zip(_parts(operation), biases, strict=True):
            formula: Any = self._formula
            while isinstance(formula, Chooses):
                formula = formula.chosen(part)
            if not isinstance(formula, Requantizes):
                return None
            found.append(formula.requantization(part, UNKNOWN, added[0] if added else None))
        return _join_channels(found)

    def _look_up(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        """Emits look-ups in one table for each channel, which the oracle computes."""
        axis, least = _axis(operation), _BYTES[str(x.ty.dtype)]
        values = np.arange(least, least + 256).astype(str(x.ty.dtype))
        tables = np.stack([self._formula.evaluate(part, values) for part in _parts(operation)])

        def look_up(value: Scalar, tables: Any, index: Sequence[Scalar]) -> Scalar:
            return tables[index[axis], value.astype("int32") - least]

        return pointwise(builder, "requantize", look_up, [x], [Table(tables), Index()])

    def _lower_parts(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        x: relax.Expr,
        biases: Sequence[tuple[Array, ...]],
    ) -> relax.Expr:
        axis, results = _axis(operation), []
        for index, (part, added) in enumerate(zip(_parts(operation), biases, strict=True)):
            channel = builder.emit(relax.op.strided_slice(x, [axis], [index], [index + 1]))
            constants = [relax.const(each) for each in added]
            results.append(builder.emit(self._formula.lower(part, builder, channel, *constants)))
        return relax.op.concat(results, axis)


def is_by_channel(operation: Operation) -> bool:
    """Returns true if `operation` is a requantization to a per-axis type, or from one. Accumulators of a layer, which
    have scales of the last axis, are an exception: all formulas requantize them to a per-tensor type.
    """
    if operation.name != "qnn.requantize":
        return False
    in_type, out_type = operation.quantized("in_type"), operation.quantized("out_type")
    if out_type.axis is not None or in_type.axis is None:
        return out_type.axis is not None
    return not in_type.is_accumulator or in_type.axis != len(operation.tensor(0)[0]) - 1


def _axis(operation: Operation) -> int:
    in_axis, out_axis = (operation.quantized(name).axis for name in ("in_type", "out_type"))
    axis = in_axis if out_axis is None else out_axis
    assert axis is not None
    return axis


def _parts(operation: Operation) -> Iterator[Operation]:
    """Iterates over the requantizations of each channel."""
    in_type, out_type = operation.quantized("in_type"), operation.quantized("out_type")
    shape, dtype = operation.tensor(0)
    axis, producer = _axis(operation), operation.producer
    x = relax.Var("channel", relax.TensorType([*shape[:axis], 1, *shape[axis + 1 :]], dtype))
    for index in range(shape[axis]):
        types = {"in_type": _channel_of(in_type, index), "out_type": _tensor_of(_channel_of(out_type, index))}
        if not in_type.is_accumulator:
            types["in_type"] = _tensor_of(types["in_type"])
        call = ops.with_operands(operation.call, x, *operation.call.args[1:], **types)
        yield Operation(call, None if producer is None else _producer_of(producer, index))


def _producer_of(producer: Operation, index: int) -> Operation:
    """Returns the layer with the scale of one of its filters, which some formulas read."""
    if "weight_type" not in producer.call.attrs.keys():  # noqa: SIM118 (DictAttrs has no `in`)
        return producer
    weight_type = _channel_of(producer.quantized("weight_type"), index)
    return Operation(ops.with_operands(producer.call, *producer.call.args, weight_type=weight_type), producer.producer)


def _channel_of(quantized: QuantizedType, index: int) -> QuantizedType:
    """Returns a per-axis type for one of its indices. It stays per-axis, because modes may compute the accumulators of
    per-axis weights in another way.
    """
    if quantized.axis is None:
        return quantized
    scale, zero_point = quantized.scales[index], quantized.zero_points[index]
    return replace(quantized, scales=(scale,), zero_points=(zero_point,))


def _tensor_of(quantized: QuantizedType) -> QuantizedType:
    """Returns a type with one scale as a per-tensor type."""
    return replace(quantized, axis=None)


def _biases(operation: Operation, bias: Array | None) -> Iterator[tuple[Array, ...]]:
    """Iterates over the bias of each channel: one array, or none."""
    for index in range(operation.tensor(0)[0][_axis(operation)]):
        yield () if bias is None else (bias[index : index + 1],)


def _join_channels(parts: Sequence[Requantization]) -> Requantization | None:
    """Returns one expression for channels that each have an expression; None if these differ in more than arrays."""
    first = parts[0]
    changes: dict[str, Any] = {}
    for field in fields(first):
        values = [getattr(part, field.name, None) for part in parts]
        arrays = [value.reshape(1) for value in values if isinstance(value, np.ndarray) and value.size == 1]
        if len(arrays) == len(parts):
            changes[field.name] = np.concatenate(arrays)
        elif any(type(value) is not type(values[0]) or value != values[0] for value in values):
            return None
    return replace(first, **changes) if all(type(part) is type(first) for part in parts) else None
