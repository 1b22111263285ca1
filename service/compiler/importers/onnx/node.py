"""An operator that is being converted: checked access to its operands, and the errors that name it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.channels_last import channels_last
from service.compiler.importers.onnx.evaluating import evaluated
from service.compiler.importers.onnx.model import BFLOAT16_PRODUCTS, Model, Tensor, shortened
from service.compiler.importers.onnx.rewriting import BYTES, DEQUANTIZE
from service.compiler.importers.qdq import UNBOUNDED, Operator
from service.compiler.qnn.graph import emit, shape_of
from service.compiler.qnn.numerics.bfloat16 import BFLOAT16
from service.compiler.qnn.operation import IllTyped
from service.compiler.qnn.types import QuantizedType
from service.core.arrays import Array
from service.core.errors import MalformedModel, Unsupported

Layout = Callable[[Array], Array]
# Of a tensor: an expression of the module, or the elements of what is known already.
Value = Any

_NAME_LENGTH = 120  # of a name hint: enough to recognise a tensor, and bounded
_MOST_CHARACTERS = 400  # about the operands of an operator
_MAX_ELEMENTS = (1 << 31) - 1
_FOLDED_ELEMENTS = 1 << 16  # of a value that is computed while importing: shapes and axes, not activations


@dataclass
class State:
    """The state of a model's conversion.

    Attributes:
        values: by name; what is known already is an array.
        types: of the tensors that hold stored values.
        loose: names of scalars that are computed, and kept with the axes of the tensor that they come from: those of
            length 1, so that of several samples each has its own.
        evaluated: by name, the elements of tensors that are computed of constants alone; None of others.
        channels_last: names of tensors that ONNX Runtime keeps so.
    """

    model: Model
    builder: relax.BlockBuilder
    values: dict[str, Value]
    types: dict[str, QuantizedType] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    evaluated: dict[str, Array | None] = field(default_factory=dict)
    constants: Constants = field(init=False)
    channels_last: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.constants = Constants(self.model)
        self.channels_last = channels_last(self.model.operators, (end.name for end in self.model.inputs))


class Constants:
    """The model's constants as expressions, one for each distinct use.

    The module holds what it is given as often as it is given it. So that a small file cannot become a large module,
    equal uses share one expression and all of them together may take `_GROWTH` times the file.
    """

    _GROWTH, _FLOOR_BYTES = 10, 1 << 20  # weights of 4 bits as float32 are eight times as large

    def __init__(self, model: Model) -> None:
        self._known: dict[tuple[str, str], relax.Constant] = {}
        self._budget_bytes = self._GROWTH * model.size_bytes + self._FLOOR_BYTES

    def expr(self, name: str, data: Array, layout: Layout | None = None) -> relax.Constant:
        """`layout(data)`, where `layout` is a function of a module (its name is part of the identity)."""
        key = (name, layout.__name__ if layout else "")
        if not name or key not in self._known:
            self.charge(data.nbytes, name)
            array = layout(data) if layout else data
            array = np.ascontiguousarray(array).reshape(array.shape)  # without the shape, a scalar would become a row
            self._known[key] = relax.const(array, array.dtype.name)  # without the dtype, int64 would become int32
        return self._known[key]

    def charge(self, size_bytes: int, name: str) -> None:
        """Takes what a constant is about to hold off what all may take.

        Raises:
            Unsupported: nothing is left.
        """
        self._budget_bytes -= size_bytes
        if self._budget_bytes < 0:
            raise Unsupported(
                "the constants that the model computes add up to far more than the file holds",
                tensor=shortened(name),
                hint="compute them before exporting (onnxsim, or onnxruntime with basic optimizations)",
            )


class TooLargeToFold(Exception):
    """A constant that an operator computes of others is larger than a shape. `refusal` says so to users."""

    def __init__(self, refusal: Unsupported) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Node:
    """An operator with one output that counts, in the middle of its conversion.

    Args:
        folds_large: whether what is computed of constants of any size is known, too; if not, such constants are
            operands like any others, and a later pass folds what is computed of them (`qnn.passes.constants`).
    """

    def __init__(self, state: State, operator: Operator, *, folds_large: bool = True) -> None:
        self.state, self.operator = state, operator
        self._folds_large = folds_large
        self.output = next(name for name in operator.outputs if name)

    @property
    def label(self) -> str:
        return shortened(self.output)

    @property
    def operand_dtype(self) -> str:
        """What a product's operands are rounded to."""
        return BFLOAT16 if self.operator.op_type in BFLOAT16_PRODUCTS.values() else "float32"

    # -- what it is given

    @property
    def input_count(self) -> int:
        return len(self.operator.inputs)

    def has(self, place: int) -> bool:
        return place < self.input_count and self.operator.inputs[place] != ""

    def name(self, place: int) -> str:
        if not self.has(place):
            self.malformed(f"leaves out its input {place}")
        return self.operator.inputs[place]

    def value(self, place: int) -> Value:
        name = self.name(place)
        if name not in self.state.values:  # of an operator that is converted for its first output only
            self.unsupported("reads an output that is not compiled", name)
        return self.state.values[name]

    def known(self, place: int) -> Array | None:
        """The elements of an input that is constant; None for what is computed."""
        value = self.value(place)
        if not isinstance(value, np.ndarray) or (not self._folds_large and value.size > _FOLDED_ELEMENTS):
            return None
        return value

    def all_known(self) -> list[Array] | None:
        """The elements of all inputs, if every one is constant."""
        known = [self.known(place) for place in range(self.input_count)]
        values = [data for data in known if data is not None]
        return values if len(values) == len(known) else None

    def data(self, place: int) -> Array:
        """The elements of an input that has to be constant."""
        data = self.constant_data(place)
        if data is None:
            self.unsupported(f"computes its input {place} at run time, which has to be constant", self.name(place))
        return data

    def constant_data(self, place: int) -> Array | None:
        """The elements of an input that depends on no input of the model, whatever operators compute it: dequantized
        weights, for example. None of others.

        Such operators are in the module until an operand has to be constant, so that weights stay as small as they are
        in the file wherever they need not be.
        """
        value, name = self.value(place), self.name(place)
        if isinstance(value, np.ndarray):
            return value
        if name not in self.state.evaluated:
            self.state.evaluated[name] = evaluated(self.state.builder, value)
        return self.state.evaluated[name]

    def integers(self, place: int) -> tuple[int, ...]:
        """A constant of integers, such as a shape or a list of axes."""
        data = self.data(place)
        self.require(data.dtype.kind in "iu" and data.ndim <= 1, f"has an input {place} that is not a list of integers")
        return tuple(int(value) for value in data.reshape(-1))

    def number(self, place: int) -> float:
        data = self.data(place)
        self.require(data.size == 1, f"has an input {place} of {data.size} elements, not one")
        return float(data.reshape(-1)[0])

    def whole(self, place: int) -> int:
        """A constant of one whole number, of whatever type."""
        value = self.number(place)
        self.require(math.isfinite(value) and value == int(value), f"has an input {place} that is no whole number")
        return int(value)

    def is_channels_first(self, place: int) -> bool:
        """Returns true if ONNX Runtime keeps a real image as the file has it. It puts the channels of others last, in
        blocks, which float convolutions read and write (optimizer/nchwc_transformer.cc)."""
        name = self.name(place)
        maker = next((each for each in self.state.model.operators if name in each.outputs), None)
        return maker is None or maker.op_type == DEQUANTIZE

    def expr(self, place: int) -> relax.Expr:
        """The input as an expression, whether it is computed or constant."""
        value = self.value(place)
        return self.state.constants.expr(self.name(place), value) if isinstance(value, np.ndarray) else value

    def constant(self, place: int, layout: Layout | None = None) -> relax.Constant:
        return self.state.constants.expr(self.name(place), self.data(place), layout)

    def literal(self, array: Array) -> relax.Constant:
        """A constant that is made for this operator, of the array's own dtype."""
        self.state.constants.charge(array.nbytes, self.output)
        return relax.const(np.ascontiguousarray(array).reshape(array.shape), array.dtype.name)

    def shape(self, place: int) -> tuple[int, ...]:
        value = self.value(place)
        return tuple(value.shape) if isinstance(value, np.ndarray) else shape_of(value)

    def dtype(self, place: int) -> str:
        value = self.value(place)
        return str(value.dtype.name if isinstance(value, np.ndarray) else value.ty.dtype)

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute of the default's type."""
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
        """The type of the stored values in input `tensor`, by its inputs `scale` and `zero_point`.

        Args:
            axis: along which there may be several scales; None where there may not.
        """
        scales, points = self.data(scale), self.data(zero_point) if self.has(zero_point) else None
        storage = self.dtype(tensor)
        self.require(points is None or points.dtype.name == storage, f"has a zero point that is not {storage}")
        quantized = self.type_of(scale, points, storage, axis)
        if axis is not None and scales.size > 1:
            self.require(self.shape(tensor)[axis] == scales.size, f"has {scales.size} scales for {self.shape(tensor)}")
        self.state.types.setdefault(self.name(tensor), quantized)
        return quantized

    def output_type(self, scale: int, zero_point: int, storage: str) -> QuantizedType:
        """The type of the output, by two inputs; `storage` where there is no zero point. Clamped by the activation
        that was put into the operator (`qdq`)."""
        points = self.data(zero_point) if self.has(zero_point) else None
        return self.clamped(self.type_of(scale, points, storage if points is None else points.dtype.name, None))

    def clamped(self, plain: QuantizedType) -> QuantizedType:
        """The type with the bounds of the activation that was put into the operator (`qdq`)."""
        if self.operator.clamp == UNBOUNDED:
            return plain
        bounds = [int(bound[0]) for bound in self.stored_bounds(plain)]
        if bounds[0] >= bounds[1]:  # a type has at least two values (as in MLIR)
            self.unsupported(f"leaves its output only the value {bounds[0]}, after its activation")
        return QuantizedType(
            plain.storage, plain.scales, plain.zero_points, storage_min=bounds[0], storage_max=bounds[1]
        )

    def stored_bounds(self, plain: QuantizedType) -> tuple[Array, Array]:
        """The bounds of that activation as they are stored, one for each scale."""
        low, high = (_stored(bound, plain) for bound in self.operator.clamp)
        return low, high

    def storage(self, place: int) -> str:
        """The storage of an input, by its own type; 4-bit values are held in bytes."""
        name = self.name(place)
        constant, quantized = self.state.model.constants.get(name), self.state.types.get(name)
        return constant.dtype if constant is not None else quantized.storage if quantized else self.dtype(place)

    def type_of(
        self, scale: int, points: Array | None, storage: str, axis: int | None, allowed: Collection[str] = BYTES
    ) -> QuantizedType:
        """The type of stored values, by a scale or several along `axis`."""
        scales = self._scales(scale, storage, allowed)
        self.require(points is None or points.size in (1, scales.size), "has scales and zero points of other numbers")
        if scales.size != 1 and axis is None:
            self.unsupported(f"has {scales.size} scales for one tensor")
        zero_points = (0,) if points is None else tuple(int(point) for point in points.reshape(-1))
        if scales.size == 1:
            return QuantizedType(storage, (float(scales.reshape(-1)[0]),), zero_points)
        return QuantizedType(storage, tuple(float(value) for value in scales.reshape(-1)), zero_points, axis=axis)

    def blocked_type(
        self, scale: int, points: Array | None, storage: str, allowed: Collection[str], axis: int, size: int
    ) -> QuantizedType:
        """The same of blocks of `size` elements along `axis`: every other axis has a scale for each index."""
        scales, shape = self._scales(scale, storage, allowed), self.shape(0)
        fits = scales.ndim == len(shape) and (points is None or points.shape == scales.shape)
        self.require(fits, f"has scales of {list(scales.shape)} for blocks of {list(shape)}")
        blocks = tuple((each, size if each == axis else 1) for each in range(len(shape)))
        each = tuple(float(value) for value in scales.reshape(-1))
        zero_points = (0,) if points is None else tuple(int(point) for point in points.reshape(-1))
        return QuantizedType(storage, each, zero_points, blocks=blocks, grid=scales.shape)

    def _scales(self, place: int, storage: str, allowed: Collection[str]) -> Array:
        scales = self.data(place)
        if scales.dtype != np.float32:
            self.unsupported(f"has a scale of {scales.dtype}; float32 can be compiled", self.name(place))
        if np.isinf(scales).any():
            self.unsupported(
                f"has an infinite scale, {shortened(self.name(place))}",
                self.name(place),
                hint="its calibration saw a mask of the lowest number: quantize the model without this operator "
                "(nodes_to_exclude)",
            )
        if not (scales > 0).all():
            self.unsupported(
                f"has a scale that is not positive, {shortened(self.name(place))}",
                self.name(place),
                hint="its calibration saw no values, or the file was edited: quantize the model again",
            )
        if storage not in allowed:
            self.unsupported(f"works on stored values of {storage}; those of {', '.join(allowed)} can be compiled")
        return scales

    # -- what it makes

    def emit(self, expr: relax.Expr, part: str = "") -> relax.Var:
        """Binds a value, under a name by which later errors can tell operator and tensor."""
        kind = self.operator.op_type.rpartition(".")[2]
        name = "_".join(filter(None, (kind, str(self.operator.index), part, self.output)))
        try:
            value = emit(self.state.builder, expr, name[:_NAME_LENGTH])
        except IllTyped as exc:
            raise self._ill_typed(exc) from exc
        if not 0 < math.prod(shape_of(value)) <= _MAX_ELEMENTS:
            self.unsupported(f"makes a tensor of {list(shape_of(value))}")
        return value

    def typed(self, value: relax.Var, quantized: QuantizedType) -> relax.Var:
        """The output, whose stored values are of that type."""
        self.state.types[self.output] = quantized
        return value

    def keep_loose(self) -> None:
        """Notes that the output is a scalar with the axes of a tensor, if the first input is one (`State.loose`)."""
        if self.name(0) in self.state.loose:
            self.state.loose.add(self.output)

    def kept(self, value: relax.Var) -> relax.Var:
        """The output, of the type of the first input, if that has one for the whole tensor."""
        quantized = self.state.types.get(self.name(0))
        return value if quantized is None or not quantized.is_per_tensor else self.typed(value, quantized)

    def folded(self, value: Any) -> Array:
        """An output that is known already.

        Raises:
            TooLargeToFold: it is too large to be a shape.
        """
        array = np.asarray(value)
        if array.size > _FOLDED_ELEMENTS:
            message = f"{self.operator.label} computes {array.size} constants"
            hint = "fold them when exporting (onnxsim, or onnxruntime)"
            raise TooLargeToFold(Unsupported(message, op=self.operator.label, tensor=self.label, hint=hint))
        return array

    def is_small(self, values: Sequence[Array]) -> bool:
        """Whether what is computed of these may be computed while importing: shapes and axes, not weights."""
        shapes = [value.shape for value in values]
        try:
            return math.prod(np.broadcast_shapes(*shapes)) <= _FOLDED_ELEMENTS
        except ValueError:
            self.malformed(f"takes {', '.join(str(list(shape)[:8]) for shape in shapes[:4])}, which do not broadcast")

    # -- errors

    def require(self, condition: bool, what: str, tensor: str | None = None) -> None:
        """Refuses the file as malformed unless `condition` holds: only what no runtime loads may break it."""
        if not condition:
            self.malformed(what, tensor)

    def require_supported(self, condition: bool, what: str, tensor: str | None = None, hint: str | None = None) -> None:
        """Refuses the operator as unsupported unless `condition` holds: runtimes load the file."""
        if not condition:
            self.unsupported(what, tensor, hint)

    def malformed(self, what: str, tensor: str | None = None) -> NoReturn:
        label = shortened(tensor or self.output)
        raise MalformedModel(f"{self.operator.label} {what}", op=self.operator.label, tensor=label)

    def _ill_typed(self, error: IllTyped) -> Unsupported:
        """What to raise if an expression has no type. Our own operators raise a RuntimeError with a sentence for users;
        of TVM's, which describe themselves, only the operands are named."""
        what = error.message
        if not isinstance(error.__cause__, RuntimeError):
            given = [
                f"{self.dtype(place)} {list(self.shape(place))}" for place in range(self.input_count) if self.has(place)
            ]
            what = f"its operands do not fit together: {', '.join(given)[:_MOST_CHARACTERS]}"
        label = self.operator.label
        return Unsupported(f"{label}: {what}", op=label, tensor=self.label)

    def unsupported(self, what: str, tensor: str | None = None, hint: str | None = None) -> NoReturn:
        label = shortened(tensor or self.output)
        raise Unsupported(f"{self.operator.label} {what}", op=self.operator.label, tensor=label, hint=hint)


def _stored(real: float, quantized: QuantizedType) -> Array:
    """A bound of real values as it is stored: rounding keeps the order, so clamping before it or behind is the same."""
    points = np.array(quantized.zero_points)
    with np.errstate(over="ignore"):
        ratio = np.clip(
            np.float32(real) / np.array(quantized.scales, np.float32), quantized.min - points, quantized.max - points
        )
    stored: Array = np.rint(ratio).astype(np.int64) + points
    return stored
