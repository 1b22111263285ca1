"""Replaces operators on constants by constants, which quantized operators can then read.

ONNX Runtime folds constants before it looks for quantized operators (optimizer/constant_folding.cc), but does not fold
DequantizeLinear at that point. Exporters rely on this. Some store weights in float32 before a QuantizeLinear
(TensorRT's explicit quantization, modelopt, AIMET, PyTorch's fake quantization). Others put an operator that moves
elements between DequantizeLinear and its reader (a Transpose of a linear layer's weights, or a leftover Identity).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from tvm import relax

from service.compiler.importers.onnx.file.tensors import NIBBLES
from service.compiler.importers.onnx.folding import folded
from service.compiler.importers.onnx.model import DEQUANTIZE_CONSTANT, Model, Tensor
from service.compiler.importers.onnx.node import Node, State, TooLargeToFold
from service.compiler.importers.onnx.operators import RULES
from service.compiler.importers.onnx.rewriting import DEQUANTIZE, QUANTIZE, TURNED
from service.compiler.importers.qdq import Operator
from service.core.errors import OctetError
from service.core.models.arrays import Array

# limit of the total size of folded constants: a multiple of the file's size, plus a minimum
_GROWTH, _FLOOR_BYTES = 4, 1 << 20
_CONVERSIONS = (DEQUANTIZE, DEQUANTIZE_CONSTANT)
_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def fold_constants(model: Model) -> Model:
    """Returns `model` with each operator that computes stored values from constants replaced by a constant.

    Three things change. An Identity or a Dropout is removed; its readers then read its operand. A QuantizeLinear of
    constants becomes a constant, and operators that only its operand needs are removed. If an operator moves the
    elements of dequantized constants, it moves the stored elements instead.

    Requires: a graph that `graph.check_graph` accepts.
    Ensures: a graph that `check_graph` would accept, with the same inputs and outputs.
    """
    return _Folding(_without_identities(model)).run()


def _without_identities(model: Model) -> Model:
    ends = {end.name for end in model.outputs}
    source: dict[str, str] = {}
    kept: list[Operator] = []
    for operator in model.operators:
        inputs = tuple(source.get(name, name) for name in operator.inputs)
        if _copies(model, operator) and operator.outputs[0] not in ends:
            source[operator.outputs[0]] = inputs[0]
        else:
            kept.append(operator if inputs == operator.inputs else replace(operator, inputs=inputs))
    return replace(model, operators=tuple(kept))


def _copies(model: Model, operator: Operator) -> bool:
    """Returns true for an Identity, and for a Dropout that drops nothing and whose mask output is not read."""
    if not operator.inputs or not operator.inputs[0]:
        return False
    if operator.op_type == "Identity":
        return len(operator.inputs) == len(operator.outputs) == 1
    trains = operator.inputs[2] if len(operator.inputs) == 3 else ""
    mode = model.constants.get(trains)
    drops = bool(trains) and (mode is None or mode.data is None or bool(mode.data.any()))
    return operator.op_type == "Dropout" and len(operator.inputs) <= 3 and not any(operator.outputs[1:]) and not drops


class _Folding:
    """Folds the constants of one model. `constants` contains the file's constants and the folded ones."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.constants = dict(model.constants)
        self.makers = {name: operator for operator in model.operators for name in operator.outputs if name}
        self.ends = {end.name for end in model.outputs}
        self._budget_bytes = _GROWTH * model.size_bytes + _FLOOR_BYTES
        self._constant = self._computed_from_constants()

    @cached_property
    def _state(self) -> State:
        values = {name: tensor.data for name, tensor in self.model.constants.items() if tensor.data is not None}
        return State(self.model, relax.BlockBuilder(), dict(values))

    def run(self) -> Model:
        operators: list[Operator] = []
        for operator in self.model.operators:
            if operator.op_type == QUANTIZE and self._folds(operator):
                continue
            moved = self._moved_conversion(operator)
            if moved is not None:
                self.makers[operator.outputs[0]] = moved
            operators.append(moved or operator)
        if len(self.constants) == len(self.model.constants) and tuple(operators) == self.model.operators:
            return self.model
        needed = _needed(operators, self.ends)
        return replace(self.model, operators=tuple(needed), constants=self.constants)

    def _computed_from_constants(self) -> set[str]:
        """Returns the names of tensors that do not depend on any input of the model."""
        constant = {"", *self.model.constants}
        for operator in self.model.operators:
            if operator.inputs and all(name in constant for name in operator.inputs):
                constant.update(operator.outputs)
        return constant

    def _folds(self, operator: Operator) -> bool:
        """Folds `operator` and everything from which its operands are computed. Returns false if the operator must
        stay.
        """
        (name, *others) = operator.outputs
        if any(others) or name in self.ends or name not in self._constant:
            return False
        return self._value(name) is not None

    def _value(self, name: str) -> Array | None:
        """Returns the elements of a tensor that depends only on constants, or None if the tensor cannot be folded."""
        waiting = [name]
        while waiting:  # not recursive, because a file may contain a chain of any length
            current = waiting[-1]
            maker = self.makers.get(current)
            if current in self.constants or maker is None:
                waiting.pop()
                continue
            missing = [each for each in maker.inputs if each and each not in self.constants]
            if missing:
                waiting += missing
                continue
            if not self._fold(maker):
                return None
            waiting.pop()
        tensor = self.constants.get(name)
        return None if tensor is None else tensor.data

    def _fold(self, operator: Operator) -> bool:
        """Computes an operator with one output from constants, with its own rule and the oracle."""
        rule = RULES.get(operator.op_type)
        outputs = [name for name in operator.outputs if name]
        if rule is None or len(outputs) != 1 or not rule.arity[0] <= len(operator.inputs) <= rule.arity[1]:
            return False
        if any(name and self.constants[name].data is None for name in operator.inputs):
            return False
        node = Node(self._state, operator)
        try:
            value = folded(node, rule.convert)
        except (OctetError, TooLargeToFold):
            return False  # the operator stays, and the importer reports the same error
        quantized = self._state.types.get(outputs[0])
        return self._keep(outputs[0], value, quantized.storage if quantized is not None else value.dtype.name)

    def _keep(self, name: str, value: Array, dtype: str) -> bool:
        if value.nbytes > self._budget_bytes:
            return False
        self._budget_bytes -= value.nbytes
        self.constants[name] = Tensor(name, dtype, value.shape, value)
        self._state.values[name] = value
        return True

    def _moved_conversion(self, operator: Operator) -> Operator | None:
        """Given an operator that moves elements of dequantized constants, returns an equivalent DequantizeLinear of
        moved constants.
        """
        if operator.op_type not in _MOVES or not operator.inputs or len(operator.outputs) != 1:
            return None
        conversion = self.makers.get(operator.inputs[0])
        if conversion is None or conversion.op_type not in _CONVERSIONS or conversion.attributes.get("block_size", 0):
            return None
        if len(conversion.inputs) < 2 or "" in conversion.inputs[:2]:
            return None
        if any(name and name not in self.constants for name in (*conversion.inputs, *operator.inputs[1:])):
            return None
        values, scale = (self.constants[name] for name in conversion.inputs[:2])
        if values.data is None or scale.data is None:
            return None
        axis = _moved_axis(operator, conversion, values.shape) if scale.data.size != 1 else 0
        if axis is None:
            return None
        stored = f"{operator.outputs[0]}_stored"
        if stored in self.constants or stored in self.makers:
            return None
        if not self._fold(replace(operator, inputs=(values.name, *operator.inputs[1:]), outputs=(stored,))):
            return None
        self.constants[stored] = replace(self.constants[stored], dtype=values.dtype)
        attributes = {**conversion.attributes, "axis": axis}
        stays = scale.data.size != 1 or (values.dtype in NIBBLES and len(conversion.inputs) < 3)
        if stays and operator.op_type == "Transpose":
            attributes[TURNED] = 1
        inputs = (stored, *conversion.inputs[1:])
        return replace(conversion, inputs=inputs, outputs=operator.outputs, attributes=attributes)


def _moved_axis(operator: Operator, conversion: Operator, shape: Sequence[int]) -> int | None:
    """Returns the axis of the scales after the move, or None if the scales do not apply to one axis any more."""
    axis = conversion.attributes.get("axis", 1)
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    if operator.op_type == "Identity":
        return axis
    if operator.op_type != "Transpose":
        return None
    order = operator.attributes.get("perm", tuple(reversed(range(len(shape)))))
    if not isinstance(order, tuple) or sorted(order) != list(range(len(shape))):
        return None
    return order.index(axis)


def _needed(operators: Sequence[Operator], ends: set[str]) -> list[Operator]:
    """Returns the operators that the model's outputs depend on."""
    read, kept = set(ends), list[Operator]()
    for operator in reversed(operators):
        if any(name in read for name in operator.outputs):
            kept.append(operator)
            read.update(operator.inputs)
    return kept[::-1]
