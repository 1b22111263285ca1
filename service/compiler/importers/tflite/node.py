"""An operator that is being converted: checked access to its operands, and the errors that name it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np
from tvm import relax

from service.compiler.importers.tflite import activations
from service.compiler.importers.tflite.model import Array, Model, Operator, OptionValue, Tensor
from service.compiler.qnn.graph import emit
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.types import QuantizedType
from service.core.errors import MalformedModel, Unsupported

Layout = Callable[[Array], Array]

_NAME_LENGTH = 120  # of a name hint: enough to recognise a tensor, and bounded


class Constants:
    """The model's constants as expressions, one for each distinct use of the file's bytes.

    Tensors of the file may share their bytes, but the module holds what it is given as often as it is given it. So
    that a small file cannot become a large module, equal uses share one expression and all of them together may take
    `_GROWTH` times the file.
    """

    _GROWTH, _FLOOR_BYTES = 2, 1 << 16

    def __init__(self, model: Model) -> None:
        self._known: dict[tuple[int | None, tuple[int, ...], str, str], relax.Constant] = {}
        self._budget_bytes = self._GROWTH * model.size_bytes + self._FLOOR_BYTES

    def expr(self, tensor: Tensor, data: Array, layout: Layout | None = None) -> relax.Constant:
        """`layout(data)`, where `layout` is a function of a module (its name is part of the identity)."""
        key = (tensor.storage, tensor.shape, tensor.dtype, layout.__name__ if layout else "")
        if key not in self._known:
            self._budget_bytes -= data.nbytes
            if self._budget_bytes < 0:
                raise MalformedModel(
                    "the model's constants add up to far more than the file holds", tensor=tensor.label
                )
            array = np.ascontiguousarray(layout(data) if layout else data)
            self._known[key] = relax.const(array, tensor.dtype)  # without the dtype, int64 would become int32
        return self._known[key]


class Node:
    """An operator with one output, in the middle of its conversion."""

    def __init__(
        self,
        model: Model,
        operator: Operator,
        builder: relax.BlockBuilder,
        values: Mapping[int, relax.Expr],
        constants: Constants,
    ) -> None:
        self.model, self.operator = model, operator
        self.output = model.tensors[operator.outputs[0]]
        self._builder, self._values, self._constants = builder, values, constants

    # -- what it is given

    @property
    def input_count(self) -> int:
        return len(self.operator.inputs)

    def input(self, place: int) -> Tensor:
        index = self.operator.inputs[place]
        if index < 0:
            self.malformed(f"leaves out its input {place}")
        return self.model.tensors[index]

    def has_input(self, place: int) -> bool:
        return place < self.input_count and self.operator.inputs[place] >= 0

    def expr(self, place: int) -> relax.Expr:
        """The input as an expression, whether it is computed or constant."""
        tensor = self.input(place)
        return self._values[tensor.index] if tensor.data is None else self._constants.expr(tensor, tensor.data)

    def constant(self, place: int, layout: Layout | None = None) -> relax.Constant:
        tensor = self.input(place)
        return self._constants.expr(tensor, self.data(place), layout)

    def data(self, place: int) -> Array:
        """The elements of an input that has to be constant."""
        tensor = self.input(place)
        if tensor.data is None:
            self.unsupported(f"computes its input {place} at run time, which has to be constant", tensor)
        return tensor.data

    def integers(self, place: int) -> Array:
        """A constant of int32 or int64, such as a shape or a list of axes."""
        tensor = self.input(place)
        if tensor.dtype not in ("int32", "int64"):
            self.malformed(f"has an input {place} of {tensor.dtype}, not int32", tensor)
        return self.data(place)

    def option(self, name: str) -> OptionValue:
        if self.operator.options is None or name not in self.operator.options:
            self.malformed("lacks its options")
        return self.operator.options[name]

    def int_option(self, name: str, least: int | None = None) -> int:
        value = self.option(name)
        assert isinstance(value, int)
        if least is not None and value < least:
            self.malformed(f"has {name} {value}; the least is {least}")
        return value

    def activation(self) -> str:
        """The fused activation, if it is one that clamps."""
        value = self.int_option("fused_activation_function")
        name = activations.NAMES.get(value, f"number {value}")
        if name not in activations.BOUNDS:
            self.unsupported(f"has the fused activation {name}; those that clamp can be compiled")
        return name

    # -- types

    def per_tensor(self, tensor: Tensor) -> QuantizedType:
        """The type of an activation: one scale and zero point."""
        quantization = tensor.quantization
        if quantization is None:
            self.malformed(f"works on the {tensor.dtype} tensor {tensor.label}, which has no quantization", tensor)
        if quantization.per_axis:
            self.unsupported(f"works on the tensor {tensor.label}, an activation that is quantized per axis", tensor)
        return QuantizedType(tensor.dtype, quantization.scales, quantization.zero_points)

    def in_type(self, place: int) -> QuantizedType:
        return self.per_tensor(self.input(place))

    def out_type(self, activation: str = "NONE") -> QuantizedType:
        """The output's type, clamped by the activation."""
        plain = self.per_tensor(self.output)
        low, high = activations.storage_bounds(activation, plain.storage, plain.scale, plain.zero_point)
        if low >= high:  # a type has at least two values (as in MLIR)
            self.unsupported(f"leaves its output only the value {low}, after its activation {activation}", self.output)
        return QuantizedType(plain.storage, plain.scales, plain.zero_points, storage_min=low, storage_max=high)

    # -- what it makes

    def emit(self, expr: relax.Expr, part: str = "") -> relax.Var:
        """Binds a value, under a name by which later errors can tell operator and tensor."""
        name = "_".join(filter(None, (self.operator.name, str(self.operator.index), part, self.output.name)))
        try:
            return emit(self._builder, expr, name[:_NAME_LENGTH])
        except IllTyped as exc:
            raise MalformedModel(
                f"{self.operator.label}: {exc.message}", op=self.operator.label, tensor=self.output.label
            ) from exc

    def expect_shape(self, shape: tuple[int, ...]) -> None:
        """The operator makes `shape`: what the file says of its output has to agree."""
        if shape != self.output.shape:
            self.malformed(f"makes a tensor of {list(shape)}, but its output is {list(self.output.shape)}", self.output)

    # -- errors

    def require(self, condition: bool, what: str, tensor: Tensor | None = None) -> None:
        if not condition:
            self.malformed(what, tensor)

    def malformed(self, what: str, tensor: Tensor | None = None) -> NoReturn:
        label = (tensor or self.output).label
        raise MalformedModel(f"{self.operator.label} {what}", op=self.operator.label, tensor=label)

    def unsupported(self, what: str, tensor: Tensor | None = None, hint: str | None = None) -> NoReturn:
        label = (tensor or self.output).label
        raise Unsupported(f"{self.operator.label} {what}", op=self.operator.label, tensor=label, hint=hint)
