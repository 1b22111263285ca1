"""A layer during its conversion: checked access to its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import node as base
from service.compiler.importers.onnx.standard import Standard
from service.compiler.importers.openvino.model import Entry, Layer
from service.compiler.importers.openvino.values import Compressed, Scaled, Stored, Value
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_WIDE_OR_HALF = ("float16", "float64")
_REALS = ("float32", *_WIDE_OR_HALF)


@dataclass
class State:
    """The state of a model's conversion.

    Attributes:
        values: the value of each output that was converted.
        reals: the real values of outputs that are stored or compressed, once they were needed.
        layers: all layers, by id.
        readers: the layers that read each output.
    """

    builder: relax.BlockBuilder
    standard: Standard
    values: dict[Entry, Value] = field(default_factory=dict)
    reals: dict[Entry, Value] = field(default_factory=dict)
    layers: Mapping[int, Layer] = field(default_factory=dict)
    readers: Mapping[Entry, Sequence[Layer]] = field(default_factory=dict)


class Node(base.Node):
    """A layer during its conversion."""

    def __init__(self, state: State, layer: Layer) -> None:
        self.state, self.layer, self.attributes = state, layer, layer.attributes
        super().__init__(state.builder, layer.label, layer.name, layer.name)

    # -- operands

    @property
    def input_count(self) -> int:
        return len(self.layer.inputs)

    def count(self, least: int, most: int | None = None) -> None:
        most = least if most is None else most
        number = self.input_count
        self.require(least <= number <= most, f"has {number} inputs, not {least}" + (f" to {most}" * (most != least)))

    def value(self, index: int) -> Value:
        self.require(index < self.input_count, f"has only {self.input_count} inputs")
        entry = self.layer.inputs[index]
        self.require(
            entry in self.state.values, f"reads output {entry[1]} of layer {entry[0]}, which has fewer outputs"
        )
        return self.state.values[entry]

    def real(self, index: int) -> relax.Expr | Array:
        """Returns an input as an expression, or as elements that are known while importing. Stored values and weights
        become real; half and double precision become float32.
        """
        value, entry = self.value(index), self.layer.inputs[index]
        if entry not in self.state.reals:
            self.state.reals[entry] = self.as_real(value)
        return self.state.reals[entry]

    def as_real(self, value: Value) -> Value:
        """Returns a value as an expression, or as elements that are known while importing."""
        if isinstance(value, Stored):
            return self.emit(ops.dequantize(value.expr, value.type), "real")
        if isinstance(value, Scaled):
            return self.emit(relax.op.multiply(value.expr, relax.const(value.scale, "float32")), "real")
        if isinstance(value, Compressed):
            return self._decompressed(value)
        if isinstance(value, np.ndarray):
            return value.astype(np.float32) if value.dtype.name in _REALS else value
        if str(value.ty.dtype) in _WIDE_OR_HALF:
            return self.emit(relax.op.astype(value, "float32"), "single")
        return value

    def _decompressed(self, weights: Compressed) -> Value:
        if weights.scale is None:
            return weights.values
        data, scale, zero = _with_positive_scales(weights.data, weights.scale, weights.zero_point)
        zero = None if zero is None or not np.any(zero) else zero
        if zero is not None and np.any(zero.astype(data.dtype) != zero):
            return weights.values
        layout = _axis_of(data, scale, zero)
        if layout is None:
            return weights.values
        stored, attributes = layout
        points = (
            None if zero is None else np.broadcast_to(zero, scale.shape).astype(data.dtype).reshape(stored[1].shape)
        )
        made = self.step("DequantizeLinear", stored[0], stored[1].astype(np.float32), points, **attributes)
        if stored[0].shape == weights.shape:
            return made
        return self.step("Reshape", made, np.array(weights.shape, np.int64))

    def constant(self, index: int) -> Array:
        """Returns the elements of an input that must be constant."""
        value = self.real(index)
        if not isinstance(value, np.ndarray):
            self.unsupported(f"computes its input {index} at run time, which must be constant")
        return value

    def integers(self, index: int) -> tuple[int, ...]:
        """Returns a constant list of integers, such as a shape or a list of axes."""
        data = self.constant(index)
        self.require(data.dtype.kind in "iu" and data.ndim <= 1, f"has input {index}, which is not a list of integers")
        return tuple(int(value) for value in data.reshape(-1))

    def number(self, index: int) -> float:
        data = self.constant(index)
        self.require(data.size == 1, f"has input {index} with {data.size} elements, not one")
        return float(data.reshape(-1)[0])

    def shape(self, index: int) -> tuple[int, ...]:
        return self.extents(self.value(index))

    def extents(self, x: Any) -> tuple[int, ...]:
        if isinstance(x, np.ndarray | Compressed):
            return tuple(x.shape)
        return shape_of(x.expr if isinstance(x, Stored | Scaled) else x)

    # -- results

    def standard(self, op_type: str, *operands: Value, results: int = 1, **attributes: Any) -> list[Value]:
        """Converts a layer of real values by the rule of ONNX's operator `op_type`, and returns its outputs."""
        return self.state.standard.convert(self.label, op_type, operands, attributes, results, self.layer.name)

    def step(self, op_type: str, *operands: Value, **attributes: Any) -> Value:
        """Returns the only output of `standard`."""
        return self.standard(op_type, *operands, **attributes)[0]

    def move_by(self, op_type: str, *others: Value, results: int = 1, **attributes: Any) -> list[Value]:
        """Converts an operator that only moves, selects or repeats elements of the first input. Stored values stay
        stored.
        """
        x = self.value(0)
        if not isinstance(x, Stored):
            return self.standard(op_type, self.real(0), *others, results=results, **attributes)
        made = self.state.standard.convert(
            self.label, op_type, (x.expr, *others), attributes, results, self.layer.name, x.type
        )
        return [Stored(each, x.type) for each in made]


def _axis_of(data: Array, scale: Array, zero: Array | None) -> tuple[tuple[Array, Array], dict[str, int]] | None:
    """Returns the stored values and scales in a form that DequantizeLinear accepts, and its attributes. Returns None if
    it accepts none.
    """
    padded = scale.reshape((1,) * (data.ndim - scale.ndim) + scale.shape)
    if zero is not None and zero.size not in (1, scale.size):
        return None
    longer = [axis for axis, size in enumerate(padded.shape) if size != 1]
    if not longer:
        return (data, scale.reshape(())), {}
    if len(longer) == 1:
        return (data, scale.reshape(-1)), {"axis": longer[0]}
    if data.ndim == 3 and longer == [0, 1]:  # groups along the last axis: [O, G, size]
        rows, groups, size = data.shape
        return (data.reshape(rows, groups * size), padded.reshape(rows, groups)), {"axis": 1, "block_size": size}
    return None


def _with_positive_scales(data: Array, scale: Array, zero: Array | None) -> tuple[Array, Array, Array | None]:
    """Returns weights whose scales are positive. If a scale is negative, as NNCF's symmetric compression writes them,
    the stored values become uint8, and those of negative scales are mirrored.
    """
    if not np.any(scale < 0):
        return data, scale, zero
    offset = 128 if data.dtype == np.int8 else 0
    wide = data.astype(np.int16) + offset
    point = np.full(scale.shape, offset, np.int16) if zero is None else zero.astype(np.int16) + offset
    point = np.broadcast_to(point, np.broadcast_shapes(point.shape, scale.shape))
    turned = np.where(scale < 0, 255 - wide, wide).astype(np.uint8)
    return turned, np.abs(scale), np.where(scale < 0, 255 - point, point)
