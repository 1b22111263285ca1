"""An operator during its conversion: checked access to its operands, and errors that name the operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import node as base
from service.compiler.importers.builder.constants import Constants, Layout
from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.channels_last import channels_last
from service.compiler.importers.onnx.evaluating import evaluated
from service.compiler.importers.onnx.model import BFLOAT16_PRODUCTS, READS_ITEMS, Items, Model, Tensor
from service.compiler.importers.onnx.rewriting import BYTES
from service.compiler.importers.qdq import UNBOUNDED, Operator
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.numerics.sums.bfloat16 import BFLOAT16
from service.compiler.qnn.operation import IllTyped, value_of
from service.compiler.qnn.plain import PLAIN
from service.compiler.qnn.types import QuantizedType
from service.core.errors import Unsupported
from service.core.models.arrays import Array

# The value of a tensor: an expression of the module; or an array, if its elements are known while importing.
Value = Any

# limit of all constants together, as a multiple of the file's size; 4-bit weights as float32 are 8 times as large
_GROWTH = 10
_MOST_CHARACTERS = 400  # length of a description of an operator's operands
# limit of a value that is computed while importing; such values are shapes and axes, not activations
_FOLDED_ELEMENTS = 1 << 16
_VIEWS = ("relax.permute_dims", "relax.reshape")  # operators whose results share the operand's memory in NumPy


@dataclass
class State:
    """The state of a model's conversion.

    Attributes:
        values: the value of each tensor by name. A value that is known while importing is an array.
        types: the types of tensors that contain stored values.
        storages: the storage types of constants that operators have moved; 4-bit values are stored in bytes.
        loose: names of computed scalars that have the same number of axes as the tensor from which they are computed,
            each of length 1. Each of several samples can then have its own scalar.
        evaluated: the elements of tensors that depend only on constants, by name; None for tensors that depend on an
            input of the model.
        free: names of tensors with a number of rows that depends on the data -> the number, `[1]` int64, and the axis.
        channels_last: names of tensors whose channels ONNX Runtime stores last.
        blocks: name of a product by stored weights -> the size of the blocks in which ONNX Runtime may quantize its
            real operand (`int8_activations`).
        products: the variables of these products -> the size of the blocks.
    """

    model: Model
    builder: relax.BlockBuilder
    values: dict[str, Value]
    types: dict[str, QuantizedType] = field(default_factory=dict)
    storages: dict[str, str] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    evaluated: dict[str, Array | None] = field(default_factory=dict)
    free: dict[str, tuple[relax.Expr, int]] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)
    products: dict[str, int] = field(default_factory=dict)
    constants: Constants = field(init=False)
    channels_last: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.constants = Constants(
            _GROWTH * self.model.size_bytes,
            lambda label: Unsupported(
                "the constants that the model computes are far larger than the file",
                tensor=label,
                hint="compute them before exporting (onnxsim, or onnxruntime with basic optimizations)",
            ),
        )
        self.channels_last = channels_last(self.model.operators, (end.name for end in self.model.inputs))


class TooLargeToFold(Exception):
    """Raised when an operator on constants computes a value that is too large to be a shape. `refusal` is the error
    message for users.
    """

    def __init__(self, refusal: Unsupported) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Node(base.Node):
    """An operator during its conversion. One of its outputs is relevant.

    Args:
        folds_large: true if values that depend only on constants are computed while importing, whatever their size.
            Otherwise, large constants are operands like any others, and a later pass folds the operators on them
            (`qnn.passes.constants`).
    """

    folds_empty = True

    def __init__(self, state: State, operator: Operator, *, folds_large: bool = True) -> None:
        self.state, self.operator = state, operator
        self._folds_large = folds_large
        self.output = next(name for name in operator.outputs if name)
        self._only_value: int | None = None
        prefix = f"{operator.op_type.rpartition('.')[2]}_{operator.index}"
        super().__init__(state.builder, operator.label, self.output, prefix, self.output)

    @property
    def operand_dtype(self) -> str:
        """The type to which the operands of a product are rounded first."""
        return BFLOAT16 if self.operator.op_type in BFLOAT16_PRODUCTS.values() else "float32"

    # -- operands

    @property
    def input_count(self) -> int:
        return len(self.operator.inputs)

    def has(self, index: int) -> bool:
        return index < self.input_count and self.operator.inputs[index] != ""

    def name(self, index: int) -> str:
        if not self.has(index):
            self.malformed(f"leaves out its input {index}")
        return self.operator.inputs[index]

    def value(self, index: int) -> Value:
        name = self.name(index)
        if name not in self.state.values:  # an additional output; only the operator's first output was converted
            self.unsupported("reads an output that cannot be compiled", name)
        value = self.state.values[name]
        if isinstance(value, Items) and self.operator.op_type not in READS_ITEMS:
            self.malformed(f"reads the sequence {shortened(name)}, where it needs a tensor", name)
        return value

    def known_value(self, index: int) -> Array | None:
        """Returns the elements of an input if they are known while importing, or None if the input is computed at run
        time.
        """
        value = self.value(index)
        if not isinstance(value, np.ndarray) or (not self._folds_large and value.size > _FOLDED_ELEMENTS):
            return None
        return value

    def all_known(self) -> list[Array] | None:
        """Returns the elements of all inputs, or None if one of them is computed at run time."""
        known = [self.known_value(index) for index in range(self.input_count)]
        values = [data for data in known if data is not None]
        return values if len(values) == len(known) else None

    def data(self, index: int) -> Array:
        """Returns the elements of an input that must be constant."""
        data = self.constant_data(index)
        if data is None:
            self.unsupported(f"computes its input {index} at run time, which must be constant", self.name(index))
        return data

    def constant_data(self, index: int) -> Array | None:
        """Returns the elements of an input that depends only on constants, even if operators compute it (such as
        dequantized weights). Returns None if it depends on an input of the model.

        Such operators stay in the module unless an operand must be constant, so that weights keep the size that they
        have in the file.
        """
        value, name = self.value(index), self.name(index)
        if isinstance(value, np.ndarray):
            return value
        if name not in self.state.evaluated:
            self.state.evaluated[name] = evaluated(self.state.builder, value)
        return self.state.evaluated[name]

    def integers(self, index: int) -> tuple[int, ...]:
        """Returns a constant list of integers, such as a shape or a list of axes."""
        data = self.data(index)
        self.require(data.dtype.kind in "iu" and data.ndim <= 1, f"has input {index}, which is not a list of integers")
        return tuple(int(value) for value in data.reshape(-1))

    def named_axes(self, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Returns axes: the second input, or the attribute `axes` of older operator sets."""
        return self.integers(1) if self.has(1) else self.attribute("axes", default)

    def number(self, index: int) -> float:
        data = self.data(index)
        self.require(data.size == 1, f"has input {index} with {data.size} elements, not one")
        return float(data.reshape(-1)[0])

    def whole(self, index: int) -> int:
        """Returns a constant whole number of any type."""
        value = self.number(index)
        self.require(math.isfinite(value) and value == int(value), f"has input {index}, which is not a whole number")
        return int(value)

    def expr(self, index: int) -> relax.Expr:
        """Returns an input, computed or constant, as an expression."""
        value = self.value(index)
        return self.constant_of(self.name(index), value) if isinstance(value, np.ndarray) else value

    def constant(self, index: int, layout: Layout | None = None) -> relax.Constant:
        return self.constant_of(self.name(index), self.data(index), layout)

    def constant_of(self, name: str, data: Array, layout: Layout | None = None) -> relax.Constant:
        return self.state.constants.expr(name, data, shortened(name), layout)

    def reserve(self, size_bytes: int) -> None:
        self.state.constants.charge(size_bytes, shortened(self.output))

    def operand(self) -> Value:
        """Returns the first input: its elements if they are known while importing, and otherwise an expression."""
        known = self.known_value(0)
        return self.expr(0) if known is None else known

    def extents(self, x: Value) -> tuple[int, ...]:
        return x.shape if isinstance(x, np.ndarray) else shape_of(x)

    def move(self, x: Value, make: Callable[[relax.Expr], relax.Call], part: str = "") -> Value:
        """Binds `make(x)`. If the elements of x are known and the result is small or a view, returns its elements."""
        if not isinstance(x, np.ndarray):
            return self.emit(make(x), part)
        operand = relax.Var("x", relax.TensorType(list(x.shape), x.dtype.name))
        call = relax.BlockBuilder().normalize(make(operand))
        if not isinstance(call, relax.Call):  # a tensor without elements
            return value_of(call)
        is_view = call.op.name in _VIEWS
        if not is_view and math.prod(shape_of(call)) > _FOLDED_ELEMENTS:
            known = x is self.value(0)
            return self.emit(make(self.expr(0) if known else self.literal(x)), part)
        if is_view and not x.flags.c_contiguous:  # a transposed view, which must be copied
            self.reserve(x.nbytes)
        operands = [x, *(value_of(arg) if isinstance(arg.ty, relax.TensorType) else arg for arg in call.args[1:])]
        return np.asarray(PLAIN[call.op.name](call, *operands))

    def shape(self, index: int) -> tuple[int, ...]:
        value = self.value(index)
        return tuple(value.shape) if isinstance(value, np.ndarray) else shape_of(value)

    def dtype(self, index: int) -> str:
        value = self.value(index)
        return str(value.dtype.name if isinstance(value, np.ndarray) else value.ty.dtype)

    def attribute(self, name: str, default: Any) -> Any:
        """Returns an attribute, which must have the type of `default`."""
        value = self.operator.attributes.get(name, default)
        wanted = Tensor if default is None else type(default)
        if value is not default and not isinstance(value, wanted):
            if not (wanted is float and isinstance(value, int)):
                self.malformed(f"has an attribute {shortened(name)} that is not {wanted.__name__}")
            return float(value)
        return value

    def integers_attribute(self, name: str, default: tuple[int, ...], least: int) -> tuple[int, ...]:
        values = self.attribute(name, default)
        self.require(
            len(values) == len(default) and all(isinstance(value, int) and value >= least for value in values),
            f"has {name} {list(values)[:8]}, not {len(default)} integers of at least {least}",
        )
        return tuple(values)

    # -- types

    def quantized(self, tensor: int, scale: int, zero_point: int, axis: int | None = None) -> QuantizedType:
        """Returns the type of the stored values in the input `tensor`. The inputs `scale` and `zero_point` define it.

        Args:
            axis: the axis along which several scales are allowed; None if only one scale is allowed.
        """
        scales, points = self.data(scale), self.data(zero_point) if self.has(zero_point) else None
        storage = self.dtype(tensor)
        self.require(points is None or points.dtype.name == storage, f"has a zero point that is not {storage}")
        quantized = self.type_of(scale, points, storage, axis)
        if axis is not None and scales.size > 1:
            self.require(
                self.shape(tensor)[axis] == scales.size,
                f"has {scales.size} scales, which do not fit the shape {list(self.shape(tensor))}",
            )
        self.state.types.setdefault(self.name(tensor), quantized)
        return quantized

    def output_type(self, scale: int, zero_point: int, storage: str) -> QuantizedType:
        """Returns the type of the output, which two inputs define. Without a zero point, its storage type is `storage`.
        If an activation was fused into the operator (`qdq`), the type is clamped to the activation's bounds.
        """
        points = self.data(zero_point) if self.has(zero_point) else None
        return self.clamped(self.type_of(scale, points, storage if points is None else points.dtype.name, None))

    def stored_types(self) -> tuple[QuantizedType, QuantizedType]:
        """Returns the types of the first input and of the output, for inputs X, X_scale, X_zero_point, Y_scale,
        Y_zero_point.
        """
        in_type = self.quantized(0, 1, 2)
        return in_type, self.output_type(3, 4, in_type.storage)

    def clamped(self, plain: QuantizedType) -> QuantizedType:
        """Returns the type clamped to the bounds of the activation that was fused into the operator (`qdq`)."""
        if self.operator.clamp == UNBOUNDED:
            return plain
        bounds = [int(bound[0]) for bound in self.stored_bounds(plain)]
        if bounds[0] == bounds[1]:  # a type has at least two values (as in MLIR)
            self._only_value = bounds[0]
            return plain
        return QuantizedType(
            plain.storage, plain.scales, plain.zero_points, storage_min=bounds[0], storage_max=bounds[1]
        )

    def clipped(self, value: Value) -> Value:
        """Returns `value`, the node's result. If the activation allows only a single stored value, returns this stored
        value instead.
        """
        if self._only_value is None:
            return value
        if isinstance(value, np.ndarray):
            return np.full_like(value, self._only_value)
        dtype = str(value.ty.dtype)
        only = relax.const(np.array(self._only_value, dtype), dtype)
        return self.emit(relax.op.minimum(self.emit(relax.op.maximum(value, only), "above"), only), "only")

    def stored_bounds(self, plain: QuantizedType) -> tuple[Array, Array]:
        """Returns the bounds of the activation that was fused into the operator, as stored values: one pair for each
        scale.
        """
        low, high = (_stored(bound, plain) for bound in self.operator.clamp)
        return low, high

    def storage(self, index: int) -> str:
        """Returns the storage type of an input, from its dtype. 4-bit values are stored in bytes."""
        name = self.name(index)
        if name in self.state.storages:
            return self.state.storages[name]
        constant, quantized = self.state.model.constants.get(name), self.state.types.get(name)
        return constant.dtype if constant is not None else quantized.storage if quantized else self.dtype(index)

    def type_of(
        self, scale: int, points: Array | None, storage: str, axis: int | None, allowed: Collection[str] = BYTES
    ) -> QuantizedType:
        """Returns the type of stored values with one scale, or with several along `axis`."""
        scales = self._scales(scale, storage, allowed)
        self.require(
            points is None or points.size in (1, scales.size), "has different numbers of scales and zero points"
        )
        if scales.size != 1 and axis is None:
            self.unsupported(f"has {scales.size} scales, where only one can be compiled")
        zero_points = (0,) if points is None else tuple(int(point) for point in points.reshape(-1))
        if scales.size == 1:
            return QuantizedType(storage, (float(scales.reshape(-1)[0]),), zero_points)
        return QuantizedType(storage, tuple(float(value) for value in scales.reshape(-1)), zero_points, axis=axis)

    def blocked_type(
        self,
        scale: int,
        points: Array | None,
        storage: str,
        allowed: Collection[str],
        axis: int,
        size: int,
        whole: tuple[int, ...] | None = None,
    ) -> QuantizedType:
        """Returns the type of stored values in blocks of `size` elements along `axis`. Along every other axis, each
        index has its own scales.

        Args:
            whole: the shape of the stored values, by default that of the first input.
        """
        scales, shape = self._scales(scale, storage, allowed), self.shape(0) if whole is None else whole
        grid = tuple(-(-extent // size) if each == axis else extent for each, extent in enumerate(shape))
        fits = scales.shape == grid and (points is None or points.shape == scales.shape)
        self.require(fits, f"has scales {list(scales.shape)}, which do not fit blocks of {list(shape)}")
        blocks = tuple((each, size if each == axis else 1) for each in range(len(shape)))
        each = tuple(float(value) for value in scales.reshape(-1))
        zero_points = (0,) if points is None else tuple(int(point) for point in points.reshape(-1))
        return QuantizedType(storage, each, zero_points, blocks=blocks, grid=scales.shape)

    def _scales(self, index: int, storage: str, allowed: Collection[str]) -> Array:
        scales = self.data(index)
        if scales.dtype != np.float32:
            self.unsupported(f"has a scale of {scales.dtype}; only float32 can be compiled", self.name(index))
        if np.isinf(scales).any():
            self.unsupported(
                f"has an infinite scale, {shortened(self.name(index))}",
                self.name(index),
                hint="its calibration saw a mask of the lowest number: quantize the model without this operator "
                "(nodes_to_exclude)",
            )
        if not (scales > 0).all():
            self.unsupported(
                f"has a scale that is not positive, {shortened(self.name(index))}",
                self.name(index),
                hint="its calibration saw no values, or the file was edited: quantize the model again",
            )
        if storage not in allowed:
            self.unsupported(f"works on stored values of {storage}; only {', '.join(allowed)} can be compiled")
        return scales

    # -- results

    def typed(self, value: relax.Var, quantized: QuantizedType) -> relax.Var:
        """Returns the output, and records that it has stored values of the given type."""
        self.state.types[self.output] = quantized
        return value

    def stored_product(self, value: relax.Var) -> relax.Var:
        """Returns a product of real values, and records it if ONNX Runtime may quantize its first operand."""
        if self.output in self.state.blocks:
            self.state.products[str(value.name)] = self.state.blocks[self.output]
        return value

    def keep_loose(self) -> None:
        """If the first input is a scalar with the axes of a tensor (`State.loose`), records the same for the output."""
        if self.name(0) in self.state.loose:
            self.state.loose.add(self.output)

    def with_input_type(self, value: Value) -> Value:
        """Returns the output. If the first input has a per-tensor type, records that type for a computed output."""
        if isinstance(value, np.ndarray):
            self.state.storages[self.output] = self.storage(0)
            return value
        quantized = self.state.types.get(self.name(0))
        return value if quantized is None or not quantized.is_per_tensor else self.typed(value, quantized)

    def folded(self, value: Any) -> Array:
        """Returns an output whose elements are known while importing.

        Raises:
            TooLargeToFold: the output is too large to be a shape.
        """
        array = np.asarray(value)
        if array.size > _FOLDED_ELEMENTS:
            message = (
                f"{self.operator.label} computes {array.size} elements from constants, more than {_FOLDED_ELEMENTS}"
            )
            hint = "fold them when exporting (onnxsim, or onnxruntime)"
            raise TooLargeToFold(Unsupported(message, op=self.label, tensor=shortened(self.output), hint=hint))
        return array

    def is_small(self, values: Sequence[Array]) -> bool:
        """Returns true if these values are small enough to be computed while importing. Shapes and axes are; weights
        are not.
        """
        shapes = [value.shape for value in values]
        try:
            return math.prod(np.broadcast_shapes(*shapes)) <= _FOLDED_ELEMENTS
        except ValueError:
            self.malformed(
                f"has operands {', '.join(str(list(shape)[:8]) for shape in shapes[:4])}, which do not broadcast"
            )

    # -- errors

    def _ill_typed(self, error: IllTyped) -> Unsupported:
        """Returns the error for an expression that has no type. The RuntimeErrors of Octet's own operators contain a
        sentence for users. The messages of TVM's operators are internal, so only the operands are shown.
        """
        what = error.message
        if not isinstance(error.__cause__, RuntimeError):
            given = [
                f"{self.dtype(index)} {list(self.shape(index))}" for index in range(self.input_count) if self.has(index)
            ]
            what = f"its operands do not fit together: {', '.join(given)[:_MOST_CHARACTERS]}"
        return Unsupported(f"{self.label}: {what}", op=self.label, tensor=shortened(self.output))


def _stored(real: float, quantized: QuantizedType) -> Array:
    """Returns a real bound as a stored value. Rounding keeps the order of numbers, so clamping before or after the
    rounding gives the same result.
    """
    points = np.array(quantized.zero_points)
    with np.errstate(over="ignore"):
        ratio = np.clip(
            np.float32(real) / np.array(quantized.scales, np.float32), quantized.min - points, quantized.max - points
        )
    stored: Array = np.rint(ratio).astype(np.int64) + points
    return stored
