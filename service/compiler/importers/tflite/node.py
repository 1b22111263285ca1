"""An operator during its conversion: checked access to its operands, and errors that name the operator."""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from tvm import relax

from service.compiler.importers.builder import node as base
from service.compiler.importers.builder.constants import Constants, Layout
from service.compiler.importers.tflite import activations
from service.compiler.importers.tflite.complex import Complex
from service.compiler.importers.tflite.file import schema
from service.compiler.importers.tflite.file.tensors import MAX_BYTES
from service.compiler.importers.tflite.model import Model, Operator, OptionValue, Quantization, Subgraph, Tensor
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.operation import value_of
from service.compiler.qnn.ops.builtin import with_builtin
from service.compiler.qnn.plain import fold
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.errors import MalformedModel
from service.core.models.arrays import Array

_GROWTH = 5
_MOST_VALUES = 200_000
Value: TypeAlias = relax.Expr | Complex
_INT32 = 2  # TensorType in schema.fbs
# Converts a subgraph for an operator: the operator's label, the number of the subgraph and its inputs -> its outputs.
Run = Callable[[str, int, Sequence[relax.Expr]], list[relax.Expr]]


@dataclass
class Emitted:
    """The number of values that the nodes of a model have bound."""

    count: int = 0


def constants_of(model: Model) -> Constants:
    """Returns the model's constants. All of them together may be at most `_GROWTH` times as large as the file would be
    without sparse and packed tensors.
    """
    tensors = (tensor for graph in (model, *model.subgraphs.values()) for tensor in graph.tensors)
    whole = {
        tensor.storage: _bytes_of(tensor)
        for tensor in tensors
        if tensor.sparse is not None or (tensor.packed_bits and tensor.data is not None)
    }
    return Constants(
        _GROWTH * (model.size_bytes + sum(whole.values())),
        lambda label: MalformedModel("the model's constants add up to far more than the file's size", tensor=label),
    )


def constant_of(
    constants: Constants, graph: Subgraph, tensor: Tensor, data: Array, layout: Layout | None = None
) -> relax.Constant:
    """Returns the elements of a tensor as an expression. Tensors of the file may share their bytes. The numbers of
    constants that are not in any buffer belong to one subgraph. A constant that was computed from others may have
    another value in each turn of a loop, so it is not shared.
    """
    if tensor.storage is None:
        return constants.expr(None, data, tensor.label, layout)
    owner = (graph.number if tensor.storage < 0 else -1, tensor.storage, tensor.shape, tensor.dtype)
    return constants.expr(owner, data, tensor.label, layout)


def _bytes_of(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


class Node(base.Node):
    """An operator during its conversion.

    Attributes:
        output: the operator's only output, or the first of several.
    """

    index_dtype = "int32"

    def __init__(
        self,
        model: Subgraph,
        operator: Operator,
        builder: relax.BlockBuilder,
        values: MutableMapping[int, Value],
        constants: Constants,
        kernel_of: Callable[[Node], str | None] = lambda node: None,
        is_delegated: Callable[[Node], bool] = lambda node: False,
        run: Run | None = None,
        emitted: Emitted | None = None,
    ) -> None:
        """
        Args:
            model: the graph that contains the operator.
            kernel_of: returns the name of the LiteRT kernel that computes the node, if its default delegate does not.
            is_delegated: returns true if LiteRT's default delegate computes the node. Both are called after the
                converter has checked the operands.
            run: converts a subgraph.
            emitted: counts the values that all nodes of the model bind.
        """
        self.model, self.operator = model, operator
        self.outputs = tuple(model.tensors[index] for index in operator.outputs)
        self.output = self.outputs[0]
        super().__init__(
            builder, operator.label, self.output.label, f"{operator.name}_{operator.index}", self.output.name
        )
        self._values, self._constants = values, constants
        self._kernel_of, self._is_delegated, self._run, self._emitted = kernel_of, is_delegated, run, emitted
        self._clips: tuple[int, int, int, int] | None = None

    # -- inputs and options

    @property
    def input_count(self) -> int:
        return len(self.operator.inputs)

    def input(self, position: int) -> Tensor:
        """Returns the input as a tensor, with its computed shape."""
        index = self.operator.inputs[position]
        if index < 0:
            self.malformed(f"has no input {position}")
        tensor, value = self.model.tensors[index], self._values.get(index)
        if value is None:
            return tensor
        return replace(tensor, shape=shape_of(value.real if isinstance(value, Complex) else value))

    def image(self) -> tuple[int, ...]:
        """Returns the shape of the first input, which must be `[N, H, W, C]`."""
        tensor = self.input(0)
        self.require(len(tensor.shape) == 4, f"has an input of shape {list(tensor.shape)}, not [N, H, W, C]", tensor)
        return tensor.shape

    def has_input(self, index: int) -> bool:
        return index < self.input_count and self.operator.inputs[index] >= 0

    def expr(self, index: int) -> relax.Expr:
        """Returns the input as an expression, computed or constant."""
        tensor = self.input(index)
        if tensor.data is None:
            value = self._values[tensor.index]
            if isinstance(value, Complex):
                self.unsupported("computes with complex values, which cannot be compiled", tensor)
            return value
        return constant_of(self._constants, self.model, tensor, tensor.data)

    def complex_value(self, index: int) -> Complex:
        """Returns the input, a computed tensor of complex64."""
        tensor = self.input(index)
        value = self._values.get(tensor.index)
        if not isinstance(value, Complex):
            self.unsupported("reads complex constants, which cannot be compiled", tensor)
        return value

    def exprs(self) -> list[relax.Expr]:
        return [self.expr(index) for index in range(self.input_count)]

    def constant(self, index: int, layout: Layout | None = None) -> relax.Constant:
        tensor = self.input(index)
        return constant_of(self._constants, self.model, tensor, self.data(index), layout)

    def data(self, index: int) -> Array:
        """Returns the elements of an input that must be constant: stored in the file, or computed only from
        constants.
        """
        data = self.data_if_constant(index)
        if data is None:
            self.unsupported(f"computes its input {index} at run time, but it must be constant", self.input(index))
        return data

    def data_if_constant(self, index: int) -> Array | None:
        """Returns the elements of an input that is constant, and None for other inputs."""
        tensor = self.input(index)
        return value_of(self.expr(index)) if tensor.data is None else tensor.data

    def keep_stored(self, real: relax.Constant, stored: Array, kind: QuantizedType) -> relax.Constant:
        """Returns `real`, and records from which stored values it was computed."""
        self._constants.dequantized[real] = stored, kind
        return real

    def stored(self, index: int) -> tuple[Array, QuantizedType] | None:
        """Returns the stored values of an input that DEQUANTIZE computes from a constant, and their type."""
        value = self._values.get(self.input(index).index)
        return None if value is None else self._constants.dequantized.get(value)

    def integers(self, index: int) -> Array:
        """Returns a constant of int32 or int64, such as a shape or a list of axes."""
        tensor = self.input(index)
        if tensor.dtype not in ("int32", "int64"):
            self.malformed(f"has {tensor.dtype} for its input {index}, not int32", tensor)
        return self.data(index)

    def option(self, name: str) -> OptionValue:
        """Returns an option. If the table of options is missing or belongs to another operator, returns the value that
        LiteRT then uses: zero (`BuiltinDataAllocator::AllocatePOD` in tflite/core/api/flatbuffer_conversions.h).
        """
        options = self.operator.options
        return schema.zero_of(name) if options is None or name not in options else options[name]

    def scalar(self, index: int) -> int:
        """Returns a constant integer of one element, such as an axis."""
        values = self.integers(index)
        self.require(
            values.size == 1,
            f"has shape {list(values.shape)} for input {index}, not one element",
            self.input(index),
        )
        return int(values.reshape(-1)[0])

    def reduced(self) -> tuple[relax.Expr, list[int], bool]:
        """Returns the operand of a reduction, its axes (the second input), and true if the axes stay with length 1.

        If the list of axes is empty, an axis of length 1 is added at the end and reduced. LiteRT ignores the axes of a
        scalar (`ResolveAxis` in tflite/kernels/internal/reference/reduce.h).
        """
        shape = self.input(0).shape
        axes = set(self.axes(self.integers(1).reshape(-1).tolist(), len(shape))) if shape else set()
        if axes:
            return self.expr(0), sorted(axes), bool(self.option("keep_dims"))
        return self.emit(relax.op.reshape(self.expr(0), (*shape, 1)), "one"), [len(shape)], False

    def int_option(self, name: str, least: int | None = None) -> int:
        value = self.option(name)
        assert isinstance(value, int)
        if least is not None and value < least:
            self.malformed(f"has {name} {value}; it must be at least {least}")
        return value

    def pair_option(self, rows: str, columns: str) -> tuple[int, int]:
        """Returns two options of at least 1, one for rows and one for columns."""
        return self.int_option(rows, least=1), self.int_option(columns, least=1)

    def activation(self) -> str:
        """Returns the name of the fused activation, which must only clamp."""
        value = self.int_option("fused_activation_function")
        name = activations.NAMES.get(value, f"number {value}")
        if name not in activations.BOUNDS:
            self.unsupported(f"has the fused activation {name}; only activations that clamp can be compiled")
        return name

    def run(self, number: int, inputs: Sequence[relax.Expr]) -> list[relax.Expr]:
        """Converts the operators of subgraph `number`, and returns its outputs."""
        assert self._run is not None, "only the importer converts operators that run subgraphs"
        return self._run(self.label, number, inputs)

    # -- types

    @property
    def is_quantized(self) -> bool:
        """True if the output has quantized values; false for shapes, indices and real values."""
        return self.output.quantization is not None and self.output.dtype in STORAGE_RANGES

    def per_tensor(self, tensor: Tensor) -> QuantizedType:
        """Returns the type of an activation, which has one scale and zero point."""
        if tensor.quantization is not None and tensor.quantization.per_axis:
            self.unsupported(f"uses the tensor {tensor.label}, an activation that is quantized per axis", tensor)
        return self.quantized(tensor)

    def quantized(self, tensor: Tensor) -> QuantizedType:
        """Returns the type of a tensor. The type has one scale and zero point, or one of each for every index of an
        axis.
        """
        quantization = tensor.quantization
        if quantization is None:
            self.malformed(f"uses the {tensor.dtype} tensor {tensor.label}, which has no quantization", tensor)
        self.check_quantization(tensor, quantization)
        if tensor.dtype == "int16" and any(quantization.zero_points):
            self.unsupported(f"uses the 16-bit tensor {tensor.label}, whose zero point is not 0", tensor)
        axis = quantization.axis if quantization.per_axis else None
        return QuantizedType(tensor.dtype, quantization.scales, quantization.zero_points, axis=axis)

    def check_quantization(self, tensor: Tensor, quantization: Quantization) -> None:
        """Requires that scales are positive and finite, and that zero points fit the storage type."""
        fault = quantization.fault_for(tensor.dtype)
        if fault is not None:
            self.unsupported(f"uses the tensor {tensor.label}, whose {fault}", tensor)

    def in_type(self, index: int) -> QuantizedType:
        return self.per_tensor(self.input(index))

    def out_type(self, activation: str = "NONE") -> QuantizedType:
        """Returns the output's type, clamped by the activation."""
        plain = self.per_tensor(self.output)
        low, high = activations.storage_bounds(activation, plain.storage, plain.scale, plain.zero_point)
        if activation != "NONE" and self._is_delegated(self):
            even = activations.delegated_bounds(activation, plain.storage, plain.scale, plain.zero_point)
            if even != (low, high):
                self._clips = (low, high, *even)
                low, high = min(low, even[0]), max(high, even[1])
        if low == high:  # a type has at least two values (as in MLIR)
            self._clips = (low, low, low, low)
            return plain
        return QuantizedType(plain.storage, plain.scales, plain.zero_points, storage_min=low, storage_max=high)

    def stored_types(self, activation: str = "NONE") -> tuple[QuantizedType, QuantizedType]:
        """Returns the types of the first input and of the output, which must have the same storage type."""
        in_type, out_type = self.in_type(0), self.out_type(activation)
        same = in_type.storage == out_type.storage
        self.require(same, f"reads {in_type.storage}, but writes {out_type.storage}")
        return in_type, out_type

    def require_one_type(self, first: int = 0, count: int | None = None) -> None:
        """Requires that the inputs from `first` on have the output's quantization, because the kernel copies stored
        values.
        """
        positions = range(first, self.input_count if count is None else first + count)
        for tensor in (self.input(position) for position in positions):
            if self.per_tensor(tensor) != self.per_tensor(self.output):
                what = f"{self.per_tensor(tensor)}, but writes {self.per_tensor(self.output)}"
                self.unsupported(f"reads {what}; its kernel requires equal quantization", tensor)

    # -- results

    def reserve(self, size_bytes: int) -> None:
        """Requires that the limit allows a constant that is not in the file."""
        if not self._constants.affords(size_bytes):
            self.unsupported(f"needs a table of {size_bytes} bytes, far larger than the file")

    @cached_property
    def _kernel(self) -> str | None:
        return self._kernel_of(self)

    def emit(self, expr: relax.Expr, part: str = "", tensor: Tensor | None = None) -> relax.Expr:
        """Binds a value under a name from which later errors can tell the operator and tensor. A plain operator on
        constants is computed instead.
        """
        if self._emitted is not None:
            self._emitted.count += 1
            if self._emitted.count > _MOST_VALUES:
                what = f"makes a model of more than {_MOST_VALUES} values: loops and recurrent layers are unrolled"
                self.unsupported(what, hint="export the model with fewer turns or steps")
        if ops.name_of(expr) is not None and self._kernel is not None:
            expr = with_builtin(expr, self._kernel, math.prod(self.output.shape))
        return self._bind(expr, part, (tensor or self.output).name)

    def _folded(self, expr: relax.Expr) -> relax.Expr | None:
        return fold(self._builder, expr, self._constants.affords)

    def clipped(self, value: relax.Expr) -> relax.Expr:
        """Returns `value`, the node's result, clamped by its fused activation if the output's type does not contain the
        bounds. This happens if modes compute different bounds, or if the bounds allow only one value.
        """
        if self._clips is None:
            return value
        clips, self._clips = self._clips, None
        low, high, even_low, even_high = clips
        type_ = self.per_tensor(self.output)
        bounds = {"low": low, "high": high, "even_low": even_low, "even_high": even_high}
        return self.emit(ops.unary("clip", value, type_, type_, **bounds), "clipped")

    def keep(self, index: int, value: relax.Expr) -> None:
        """Stores `value` in the input `index`, which must be a variable."""
        tensor = self.input(index)
        self.require(tensor.is_variable, f"changes {tensor.label}, which is not a variable", tensor)
        self.expect(tensor, value)
        self._values[tensor.index] = value

    def expect_shape(self, shape: tuple[int, ...], tensor: Tensor | None = None) -> None:
        """Requires that an output of `shape` can be compiled. The shape that the file gives for the output has no
        effect, because LiteRT recomputes shapes when it prepares a kernel.
        """
        tensor = tensor or self.output
        if math.prod(shape) * np.dtype(tensor.dtype).itemsize > MAX_BYTES:
            self.unsupported(f"computes a tensor of shape {list(shape)}, which is more than 2 GiB", tensor)

    def expect(self, tensor: Tensor, value: relax.Expr) -> None:
        """Checks `value`, the expression that the operator computes for its output `tensor`."""
        self.expect_shape(shape_of(value), tensor)
        made = str(value.ty.dtype)
        self.require(made == tensor.dtype, f"computes {made}, but its output is {tensor.dtype}", tensor)


def accumulators_of(node: Node, source: int = 0) -> str:
    """Returns the accumulators' dtype for activations `source`: 64 bits for 16-bit activations, unless an option
    declares a 32-bit bias.
    """
    return "int64" if node.input(source).dtype == "int16" and node.option("quantized_bias_type") != _INT32 else "int32"
