"""A node of the delegate's graph during its conversion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import node as base
from service.compiler.importers.executorch.file.delegate_schema import (
    FP32,
    NO_VALUE,
    QBINT4,
    QCINT4,
    QCINT8,
    QCINT32,
    QINT8,
    QINT32,
    QUINT8,
)
from service.compiler.importers.executorch.graph import Operator, Scales, Tensor
from service.compiler.importers.executorch.values import Dynamic, Stored, Value
from service.compiler.importers.onnx.standard import Standard
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType
from service.core.errors import InvalidInput, Unsupported
from service.core.models.arrays import Array

_ACTIVATIONS = {QINT8: "int8", QUINT8: "uint8"}
_WEIGHTS = {QINT8: "int8", QCINT8: "int8", QCINT4: "int4", QBINT4: "int4"}
_BIASES = (QINT32, QCINT32)
_NIBBLE_ZERO_POINT = 8  # weights of 4 bits are stored as unsigned numbers


@dataclass(eq=False)
class State:
    """The state of a graph's conversion.

    Attributes:
        tensors: all values of the graph, by number.
        values: the values that were converted, by number.
    """

    builder: relax.BlockBuilder
    standard: Standard
    tensors: Mapping[int, Tensor]
    values: dict[int, Value] = field(default_factory=dict)


def activation_type(tensor: Tensor) -> QuantizedType:
    """Returns the type of an activation.

    Raises:
        InvalidInput: the quantization breaks a rule of quantized types.
        Unsupported: the value does not have one scale, or is not of 8 bits.
    """
    if tensor.scales is None or tensor.datatype not in _ACTIVATIONS or len(tensor.scales.scales) != 1:
        raise Unsupported(f"value {tensor.number} of the delegate's graph has a quantization that cannot be compiled")
    return QuantizedType(_ACTIVATIONS[tensor.datatype], tensor.scales.scales, (tensor.scales.zero_point,))


class Node(base.Node):
    """A node during its conversion.

    Attributes:
        output: the value that the node computes.
    """

    def __init__(self, state: State, operator: Operator, call: int) -> None:
        """`call` is the number of the instruction that calls the delegate."""
        self.state, self.operator, self._fields = state, operator, operator.fields
        name = f"{operator.name}_{call}_{operator.index}"
        super().__init__(state.builder, operator.label, name, name)
        self.output = self._tensor(self._fields.unsigned("output_id"))

    # -- fields

    def integer(self, name: str, least: int = 0) -> int:
        value = self._fields.unsigned(name)
        self.require(value >= least, f"has {name} {value}, but at least {least} is needed")
        return value

    def pair(self, names: str, least: int = 0) -> tuple[int, int]:
        """Returns the fields `NAME_height` and `NAME_width`."""
        return self.integer(f"{names}_height", least), self.integer(f"{names}_width", least)

    def numbers(self, name: str) -> list[int]:
        return [int(each) for each in self._fields.numbers(name, "uint32")]

    def real(self, name: str) -> float:
        value = self._fields.real(name)
        self.require_supported(math.isfinite(value), f"has {name} {value}, which is not finite")
        return value

    def sides(self) -> tuple[int, int, int, int]:
        """Returns the padding: top, left, bottom, right."""
        top, left, bottom, right = (self.integer(f"padding_{side}") for side in ("top", "left", "bottom", "right"))
        return top, left, bottom, right

    def check_flags(self, allowed: int = 0) -> int:
        """Returns the node's flags, and requires that they contain only bits of `allowed`."""
        flags = self._fields.unsigned("flags")
        self.require_supported(not flags & ~allowed, f"has the flags {flags:#x}, which cannot be compiled")
        return flags

    # -- operands

    def has(self, name: str) -> bool:
        return self._fields.unsigned(name) != NO_VALUE

    def tensor(self, name: str) -> Tensor:
        """Returns an operand as the graph describes it."""
        return self._tensor(self._fields.unsigned(name))

    def _tensor(self, number: int) -> Tensor:
        self.require(number in self.state.tensors, f"refers to value {number}, which the graph does not have")
        return self.state.tensors[number]

    def value(self, name: str) -> Value:
        """Returns an operand: what another node computed, or a constant."""
        tensor = self.tensor(name)
        if tensor.number in self.state.values:
            return self.state.values[tensor.number]
        self.require(tensor.data is not None, f"reads value {tensor.number} before a node computes it")
        assert tensor.data is not None
        if tensor.datatype in _ACTIVATIONS:
            return Stored(self.literal(tensor.data), self.type_of(tensor))
        self.require_supported(tensor.datatype == FP32, "reads a constant of a type that cannot be compiled here")
        return tensor.data

    def expr(self, name: str) -> relax.Expr:
        """Returns an operand of real values as an expression."""
        value = self.reals(name)
        return self.literal(value) if isinstance(value, np.ndarray) else value

    def reals(self, name: str) -> relax.Expr | Array:
        """Returns an operand of real values: an expression, or elements that are known while importing."""
        value = self.value(name)
        self.require_supported(
            not isinstance(value, Stored | Dynamic), "reads quantized values, for which XNNPACK has no such operator"
        )
        return value

    def stored(self, name: str) -> Stored:
        value = self.value(name)
        if not isinstance(value, Stored):
            self.malformed("mixes quantized and real values")
        return value

    def weights(self, name: str) -> tuple[Array, Scales]:
        """Returns constant weights of 8 or 4 bits as int8, and their quantization."""
        tensor = self.tensor(name)
        if tensor.data is None or tensor.scales is None or tensor.datatype not in _WEIGHTS:
            self.unsupported("has weights that are not a constant of 8 or 4 bits")
        self.require_supported(tensor.scales.zero_point == 0 or tensor.data.dtype == np.uint8, "has asymmetric weights")
        if _WEIGHTS[tensor.datatype] == "int8":
            return tensor.data, tensor.scales
        self.reserve(math.prod(tensor.shape))
        pairs = np.stack([tensor.data & 0xF, tensor.data >> 4], axis=-1).reshape(*tensor.data.shape[:-1], -1)
        wide = pairs[..., : tensor.shape[-1]].astype(np.int8) - np.int8(_NIBBLE_ZERO_POINT)
        return np.ascontiguousarray(wide), tensor.scales

    def bias(self, name: str, filters: int) -> Array | None:
        """Returns the constant bias `[filters]`: int32 for stored activations, float32 for real ones."""
        if not self.has(name):
            return None
        tensor = self.tensor(name)
        if tensor.data is None or tensor.datatype not in (FP32, *_BIASES):
            self.unsupported("has a bias that is not a constant of int32 or float32")
        self.require(tensor.data.size == filters, f"has a bias of {tensor.data.size} elements for {filters} filters")
        return tensor.data.reshape(filters)

    # -- types

    def type_of(self, tensor: Tensor) -> QuantizedType:
        """Returns the type of an activation."""
        try:
            return activation_type(tensor)
        except InvalidInput as error:
            self.malformed(f"uses value {tensor.number}: {error.message}")

    def weight_type(self, scales: Scales, axis: int, filters: int) -> QuantizedType:
        """Returns the type of weights `[filters, …]` that have a scale for each index of `axis` in the file."""
        count = len(scales.scales)
        fits = count == 1 or (count == filters and scales.axis == axis)
        self.require_supported(fits and not scales.block, f"has {count} scales for its {filters} filters")
        try:
            return QuantizedType("int8", scales.scales, axis=0 if count > 1 else None)
        except InvalidInput as error:
            self.malformed(f"has weights whose {error.message}")

    def out_type(self) -> QuantizedType:
        """Returns the output's type, with the bounds of the node's clamp. XNNPACK rounds bounds to the nearest stored
        value, halves to even (xnn_qs8_quantize).
        """
        plain, bounds = self.type_of(self.output), self.operator.bounds
        if bounds is None:
            return plain
        with np.errstate(over="ignore", invalid="ignore"):
            real = np.array(bounds, np.float32) / np.float32(plain.scale) + np.float32(plain.zero_point)
        self.require(not np.isnan(real).any(), "has a clamp whose bounds are not numbers")
        low, high = (int(np.rint(np.clip(each, plain.min, plain.max))) for each in real)
        self.require_supported(low < high, "has a clamp that leaves only one value")
        return replace(plain, storage_min=low, storage_max=high)

    # -- results

    def clamped(self, x: relax.Expr) -> relax.Expr:
        """Returns real values, clamped by the node's bounds."""
        for bound, limit in zip(self.operator.bounds or (), (relax.op.maximum, relax.op.minimum), strict=False):
            self.require(not math.isnan(bound), "has a clamp whose bounds are not numbers")
            if math.isfinite(bound):
                x = self.emit(limit(x, relax.const(np.array(bound, np.float32))), "clamped")
        return x

    def step(self, op_type: str, *operands: Value, **attributes: Any) -> Value:
        """Converts an operator of real values by the rule of ONNX's operator `op_type`, and returns its output."""
        return self.state.standard.convert(self.label, op_type, operands, attributes, 1, self._output)[0]

    def extents(self, x: Any) -> tuple[int, ...]:
        if isinstance(x, np.ndarray):
            return tuple(x.shape)
        return shape_of(x.expr if isinstance(x, Stored | Dynamic) else x)

    def move_elements(self, x: Value, make: Any) -> Value:
        """Returns `make(x)`, a call that only moves elements. Stored values stay stored."""
        if isinstance(x, Stored):
            return Stored(self.emit(make(x.expr)), x.type)
        if isinstance(x, Dynamic):
            return Dynamic(self.emit(make(x.expr)))
        return self.emit(make(self.literal(x) if isinstance(x, np.ndarray) else x))
