"""PyTorch's vocabulary for the pass that creates quantized operators between conversions (`importers.qdq`).

A fused operator has the prefix `octet::` instead of `aten::` (`operators.fused`), and the arguments of the float
operator. Its operands are the stored values, with their types; constant weights keep their own types. The result of the
operator is stored too, if the result is quantized next and nothing else reads it. Convolutions and linear layers are
fused even if no quantization follows: their products are integers, and only their sums become real values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from service.compiler.importers.qdq import Bounds, Fuse, Graph, Operator, Vocabulary, fuse
from service.compiler.importers.torch.exported.conversions import real_values, typed
from service.compiler.importers.torch.exported.program import DEQUANTIZE, QUANTIZE, Call, Operand, Program
from service.compiler.importers.torch.tensors import Quantization, Tensor
from service.compiler.qnn.types import QuantizedType

_MOVES = frozenset(
    f"aten::{name}"
    for name in (
        *("clone", "contiguous", "detach", "dropout", "flatten", "max_pool2d", "pad", "permute", "reshape", "select"),
        *("slice", "squeeze", "transpose", "unsqueeze", "upsample_nearest2d", "view"),
    )
)
# Activations: the bounds of their result if the call contains no bounds, and the names of the arguments that contain
# bounds.
_ACTIVATIONS: dict[str, tuple[Bounds, tuple[str, str]]] = {
    "aten::clamp": ((-math.inf, math.inf), ("min", "max")),
    "aten::hardtanh": ((-1.0, 1.0), ("min_val", "max_val")),
    "aten::relu": ((0.0, math.inf), ("", "")),
    "aten::relu6": ((0.0, 6.0), ("", "")),
}


class ProgramGraph(Graph):
    """The program in its current state.

    Attributes:
        constants: name -> constant. Rules add some.
    """

    def __init__(self, program: Program) -> None:
        names = {*program.constants, *(end.name for end in program.inputs)}
        names |= {name for call in program.calls for name in call.outputs}
        super().__init__(names, program.outputs)
        self.constants = dict(program.constants)

    def conversion(self, name: str) -> Call | None:
        """Returns the dequantization that computes `name`; None if there is none."""
        return cast("Call | None", self.made_by(name, DEQUANTIZE))

    def stored(self, name: str) -> tuple[str, QuantizedType] | None:
        """If `name` was dequantized with one scale, returns the stored values and their type; otherwise None."""
        conversion = self.conversion(name)
        if conversion is None or conversion.quantized is None or not conversion.quantized.is_per_tensor:
            return None
        return conversion.inputs[0], conversion.quantized

    def weights(self, name: str) -> str | None:
        """Adds a constant with the stored weights of `name` and their quantization, and returns its name. Returns None
        if the weights are not constant, or are quantized in blocks.
        """
        conversion = self.conversion(name)
        tensor = self.constants.get(conversion.inputs[0]) if conversion is not None else None
        if conversion is None or tensor is None or conversion.quantized is None:
            return None
        of = conversion.quantized
        if of.blocks is not None:
            return None
        return self._add(name, Tensor(tensor.data, Quantization(of.scales, of.zero_points, of.axis)))

    def reals(self, name: str) -> str | None:
        """Returns a constant of real values, such as a bias, dequantizing it if it is stored. Returns None if it is
        computed.
        """
        if name in self.constants:
            return name
        conversion = self.conversion(name)
        tensor = self.constants.get(conversion.inputs[0]) if conversion is not None else None
        if conversion is None or tensor is None or conversion.quantized is None:
            return None
        return self._add(name, Tensor(real_values(tensor.data, conversion.quantized)))

    def _add(self, stem: str, tensor: Tensor) -> str:
        name = self.new_name(stem)
        self.constants[name] = tensor
        return name


def fused(program: Program) -> tuple[list[Call], dict[str, Tensor]]:
    """Returns the calls of `program` after float operators between conversions were replaced by quantized operators.
    Also returns the program's constants, including new ones.
    """
    graph = ProgramGraph(program)
    calls = fuse(graph, [_told_apart(call) for call in typed(program)], _VOCABULARY)
    return cast("list[Call]", calls), graph.constants


def _told_apart(call: Call) -> Call:
    """Distinguishes two types of padding. `aten::pad` is padding that only moves elements: with zeros, which are stored
    exactly, or with elements of the operand. Padding with another number becomes `aten::constant_pad_nd`.
    """
    if call.op_type == "aten::pad" and _given(call, 2, "mode", "constant") == "constant":
        value = _given(call, 3, "value", 0)
    elif call.op_type == "aten::constant_pad_nd":
        value = _given(call, 2, "value", 0)
    else:
        return call
    arguments = (call.arguments[0], _given(call, 1, "pad", None))
    if type(value) in (int, float) and value == 0:
        return replace(call, op_type="aten::pad", arguments=arguments, named={})
    return replace(call, op_type="aten::constant_pad_nd", arguments=(*arguments, value), named={})


def _is_per_tensor(_: ProgramGraph, conversion: Operator) -> bool:
    quantized = cast("Call", conversion).quantized
    return quantized is not None and quantized.is_per_tensor and quantized.storage in ("int8", "uint8")


def bounds_of(_: ProgramGraph, activation: Operator, name: str) -> Bounds | None:
    found = _ACTIVATIONS.get(activation.op_type)
    if found is None or activation.inputs != (name,):
        return None
    call, (bounds, names) = cast("Call", activation), found
    low, high = (_given(call, position + 1, names[position], bounds[position]) for position in (0, 1))
    known = isinstance(low, int | float) and isinstance(high, int | float) and low <= high
    return (float(low), float(high)) if known else None


def _given(call: Call, index: int, name: str, default: Any) -> Any:
    """Returns an argument that is given by position or by name."""
    if not name:
        return default
    value = call.arguments[index] if index < len(call.arguments) else call.named.get(name)
    return default if value is None else value


def _bounded(relu: Operator, conversion: Operator, stored: str) -> Operator:
    of = cast("Call", conversion).quantized
    assert of is not None  # _is_per_tensor
    return replace(cast("Call", relu), inputs=conversion.inputs, outputs=(stored,), types={0: of})


def _octet(call: Operator, inputs: Sequence[str], types: dict[int, QuantizedType], conversion: Operator | None) -> Call:
    own = cast("Call", call)
    quantized = None if conversion is None else cast("Call", conversion).quantized
    name = own.op_type.replace("aten::", "octet::")
    return replace(own, op_type=name, inputs=tuple(inputs), types=types, quantized=quantized)


def _layer(graph: ProgramGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Fuses a convolution or a linear layer, with its weights and an optional bias."""
    if len(operator.inputs) not in (2, 3) or cast("Call", operator).arguments[:2] != (Operand(0), Operand(1)):
        return []
    x, weights = graph.stored(operator.inputs[0]), graph.weights(operator.inputs[1])
    bias = [graph.reals(name) for name in operator.inputs[2:]]
    if x is None or weights is None or None in bias:
        return []
    inputs = [x[0], weights, *(name for name in bias if name is not None)]
    return [_octet(operator, inputs, {0: x[1]}, conversion)]


def _several(graph: ProgramGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Fuses an operator with any number of operands, all of them stored."""
    operands = [graph.stored(name) for name in operator.inputs]
    if conversion is None or not operands or None in operands:
        return []
    found = [operand for operand in operands if operand is not None]
    types = {index: quantized for index, (_, quantized) in enumerate(found)}
    return [_octet(operator, [name for name, _ in found], types, conversion)]


def _pair(graph: ProgramGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Fuses an operator on two tensors that does not multiply them."""
    call = cast("Call", operator)
    if call.arguments != (Operand(0), Operand(1)) or set(call.named.values()) - {1}:
        return []
    return _several(graph, operator, conversion)


def _activation(graph: ProgramGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Fuses an activation that is the only operator between two conversions. The pass applies its bounds."""
    if bounds_of(graph, operator, operator.inputs[0]) is None:
        return []
    return _requantized(graph, operator, conversion)


def _conversion(graph: ProgramGraph, operator: Operator, _: Operator | None) -> list[Operator]:
    """Fuses a quantization of a dequantized value."""
    return _requantized(graph, operator, operator if _is_per_tensor(graph, operator) else None)


def _requantized(graph: ProgramGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    made = _several(graph, operator, conversion)
    return [
        replace(cast("Call", call), op_type="octet::requantize", arguments=(Operand(0),), named={}) for call in made
    ]


_LAYERS = (
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    "linear",
)
_PAIRS = ("add", "mul")
_ONES = (
    *("adaptive_avg_pool2d", "avg_pool2d", "cat", "mean"),
    *("elu", "hardsigmoid", "hardswish", "leaky_relu", "sigmoid", "silu", "tanh"),
)
_FUSED: dict[str, Fuse[ProgramGraph]] = {
    **{f"aten::{name}": cast("Fuse[ProgramGraph]", _layer) for name in _LAYERS},
    **{f"aten::{name}": _pair for name in _PAIRS},
    **{f"aten::{name}": _several for name in _ONES},
    **dict.fromkeys(_ACTIVATIONS, _activation),
    QUANTIZE: _conversion,
}
_VOCABULARY: Vocabulary[ProgramGraph] = Vocabulary(
    quantize=QUANTIZE,
    dequantize=DEQUANTIZE,
    moves=_MOVES,
    per_tensor=_is_per_tensor,
    bounds=bounds_of,
    bounded=_bounded,
    bounded_types=frozenset({"aten::relu"}),
    fused=_FUSED,
)
