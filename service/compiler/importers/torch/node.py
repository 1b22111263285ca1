"""An operator during its conversion: checked access to its operands, and errors that name the operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from tvm import relax

from service.compiler.importers.builder import node as base
from service.compiler.importers.channels_first import in_channels_last
from service.compiler.importers.torch.tensors import Quantization, Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.types import QuantizedType
from service.core.errors import InvalidInput, Unsupported

# c10/core/ScalarType.h.
STORAGES: dict[int, str] = {12: "int8", 13: "uint8"}

QUANTIZE = "quantize it with torch.ao.quantization, so that no operator is left in float (docs/how-to/pytorch.md)"
ANOTHER_FORM = "Octet compiles this operator with other operands or arguments: write this part of the model otherwise"
_NAME_LENGTH = 120  # limit of a name hint
_LARGEST_SIZE = 1 << 31


class Node(base.Node):
    """An operator during its conversion.

    Attributes:
        label: the operator's name in error messages.
        output: the variable that the operator computes.
    """

    remedy = ANOTHER_FORM

    def __init__(self, builder: relax.BlockBuilder, label: str, output: str) -> None:
        self.output = output[:_NAME_LENGTH]
        super().__init__(builder, label, self.output, self.output or label.split(" ")[0].split("::")[-1])

    # -- inputs

    def tensor(self, value: Any) -> Value:
        """Returns an operand that the model computes, or a constant that is not quantized."""
        if isinstance(value, Tensor):
            if value.quantization is not None:
                self.unsupported("has a quantized constant as an operand")
            constant = np.ascontiguousarray(value.data).reshape(value.data.shape)
            return Value(self.emit(relax.const(constant, constant.dtype.name), "constant"))
        if not isinstance(value, Value):
            self.unsupported("has an operand that is not a tensor")
        return value

    def activation(self, value: Any, rank: int | None = None) -> tuple[Value, QuantizedType]:
        """Returns an operand of quantized values, and its type."""
        tensor = self.tensor(value)
        if tensor.quantized is None:
            self.unsupported(
                f"on {tensor.dtype}",
                hint=QUANTIZE,
            )
        if rank is not None and len(tensor.shape) != rank:
            self.unsupported(f"on a tensor with {len(tensor.shape)} dimensions, not {rank}")
        return tensor, tensor.quantized

    def real_tensor(self, value: Any) -> Value:
        """Returns an operand of real values."""
        tensor = self.tensor(value)
        if tensor.quantized is not None or tensor.dtype != "float32":
            self.unsupported(f"on {tensor.dtype}", hint="dequantize all of its operands, or none")
        return tensor

    def integer(self, value: Any, least: int = -_LARGEST_SIZE) -> int:
        if type(value) is not int or not least <= value < _LARGEST_SIZE:
            self.unsupported(f"has an argument that is not an integer of at least {least}")
        return value

    def pair(self, value: Any, least: int) -> tuple[int, int]:
        """Returns one number for rows and one for columns. `value` may be one number for both."""
        items = value if isinstance(value, list | tuple) else [value]
        if len(items) not in (1, 2):
            self.unsupported("needs one number or two numbers for rows and columns")
        numbers = [self.integer(item, least) for item in items]
        return numbers[0], numbers[-1]

    def each(self, value: Any, count: int, least: int) -> list[int]:
        """Returns a number for each of `count` dimensions. One number applies to all of them."""
        items = value if isinstance(value, list | tuple) else [value]
        if len(items) not in (1, count):
            self.unsupported(f"needs one number, or {count} of them")
        numbers = [self.integer(item, least) for item in items]
        return numbers * count if len(numbers) == 1 else numbers

    def sizes(self, value: Any) -> list[int]:
        """Returns a list of integers."""
        items = value if isinstance(value, list | tuple) else [value]
        return [self.integer(item) for item in items]

    def parts(self, value: Any) -> Sequence[Any]:
        """Returns a list of operands, of which there must be at least one."""
        if not isinstance(value, list | tuple) or not value:
            self.unsupported("joins something other than a list of tensors")
        return value

    def reduced_axes(self, value: Any, rank: int) -> list[int]:
        """Returns axes without repetition, or all axes for None."""
        return sorted(set(range(rank) if value is None else self.axes(self.sizes(value), rank)))

    def axis(self, named: Any, rank: int) -> int:
        return super().axis(self.integer(named), rank)

    def real(self, value: Any) -> float:
        """Returns a number, or the number in a constant of one element."""
        if isinstance(value, Tensor) and value.data.size == 1:
            value = value.data.reshape(-1)[0].item()
        if isinstance(value, int) and abs(value) >= 1 << 63:
            self.unsupported("has an integer with more than 64 bits")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.unsupported("has an argument that is not a finite number")
        return float(value)

    def flag(self, value: Any) -> bool:
        if not isinstance(value, bool):
            self.unsupported("has an argument that is not true or false")
        return value

    # -- types

    def per_tensor(self, storage: str, scale: Any, zero_point: Any) -> QuantizedType:
        """Returns a type as ATen's kernels use it: they convert scales to float32 before computing."""
        if isinstance(zero_point, Tensor) and zero_point.data.size == 1:
            zero_point = zero_point.data.reshape(-1)[0].item()
        return self.typed(storage, Quantization((self.real(scale),), (self.integer(zero_point),)))

    def typed(self, storage: str, quantization: Quantization) -> QuantizedType:
        """Returns the type of a tensor that has `quantization`."""
        with np.errstate(over="ignore", under="ignore"):
            scales = tuple(float(np.float32(scale)) for scale in quantization.scales)
        try:
            return QuantizedType(storage, scales, quantization.zero_points, axis=quantization.axis)
        except InvalidInput as exc:
            self.unsupported(exc.message)

    # -- results

    def value(self, expr: relax.Expr, quantized: QuantizedType | None) -> Value:
        """Returns the operator's result."""
        return Value(self.emit(expr), quantized)

    def image(self, x: Value, body: Callable[[relax.Var], relax.Expr], quantized: QuantizedType | None) -> Value:
        """Applies `body` to the image `x` in channels-last layout. Returns the result with channels first."""
        exact_scale = x.exact_scale if quantized == x.quantized else None
        return Value(in_channels_last(self.emit, x.expr, body), quantized, exact_scale)

    # -- errors
    #
    # PyTorch has more overloads of an operator than there are rules here, so a rule cannot tell whether PyTorch would
    # run the operator. These errors therefore never report that the file is damaged.

    def malformed(self, what: str, tensor: object = None) -> NoReturn:
        self.unsupported(what, tensor)

    def _ill_typed(self, error: IllTyped) -> Unsupported:
        return Unsupported(f"{self.label} {error.message}", op=self.label, tensor=self.output, hint=self.remedy)
