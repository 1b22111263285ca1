"""A call of a QNN operator, with typed access to its operands and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn.type_parser import parse, parse_normalized
from service.compiler.qnn.types import QuantizedType
from service.core.errors import InvalidInput, UnsupportedOperator
from service.core.models.arrays import Array

T = TypeVar("T")

BUILTIN = "builtin"  # the attribute that names the kernel of an operation; see `qnn.ops.builtin`
# a `qnn.requantize` that rounds differently depending on the position of an element
VECTORIZED = "qnn.vector_requantize"


# Attribute -> the index of the operand whose type it contains.
_OPERANDS = {"in_type": 0, "lhs_type": 0, "type": 0, "residual_type": 1, "rhs_type": 1, "weight_type": 1}


class IllTyped(InvalidInput):
    """The operands of a quantized operator do not fit together."""

    code = "ill_typed"


class Operation:
    """Reads a call. Every method raises `IllTyped`, with the attribute's name, if the call is malformed."""

    def __init__(self, call: relax.Call, producer: Operation | None = None) -> None:
        """`producer` is the operation that computes the first operand; None if that is not a QNN operation."""
        self.call, self.producer = call, producer
        self.name = str(call.op.name.removeprefix("relax."))
        self._made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Returns the result of `make()`. `make` is called once, and the result is cached under `name`. Formulas use
        this for values that they derive from constants.
        """
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    def fail(self, what: str) -> NoReturn:
        raise IllTyped(f"{self.name}: {what}", op=self.name)

    def require(self, condition: bool, what: str) -> None:
        if not condition:
            self.fail(what)

    def require_defined(self, condition: bool, what: str) -> None:
        """Checks, for a formula, that the numerics mode defines the operation. The operands are already known to fit
        together.

        Raises:
            UnsupportedOperator: `condition` is false.
        """
        if not condition:
            raise UnsupportedOperator(f"{self.name}: {what}", op=self.name)

    def count(self, *allowed: int) -> int:
        number = len(self.call.args)
        self.require(number in allowed, f"takes {' or '.join(map(str, allowed))} operands, not {number}")
        return number

    def attr(self, name: str) -> Any:
        if self.call.attrs is None or name not in self.call.attrs.keys():  # noqa: SIM118 (DictAttrs has no `in`)
            self.fail(f"attribute {name} is missing")
        return self.call.attrs[name]

    def quantized(self, name: str) -> QuantizedType:
        """Returns the type in an attribute, in its simplest form."""
        text = str(self.attr(name))
        given, index = parse(text), _OPERANDS.get(name, len(self.call.args))
        if given.blocks and index < len(self.call.args):
            self.fits(self.tensor(index)[0], given)  # the simplest form does not contain all block sizes
        return parse_normalized(text)

    def quantized_parts(self) -> list[QuantizedType]:
        """Returns the types of the tensors that `qnn.concatenate` joins."""
        return [parse_normalized(str(text)) for text in self.attr("in_types")]

    def per_tensor(self, name: str) -> QuantizedType:
        quantized = self.quantized(name)
        self.require(quantized.is_per_tensor, f"{name} must be per-tensor, not per-axis or in blocks")
        return quantized

    @property
    def builtin(self) -> str | None:
        """The LiteRT kernel that computes this operation; None if LiteRT's default delegate computes it."""
        if self.call.attrs is None or BUILTIN not in self.call.attrs.keys():  # noqa: SIM118 (DictAttrs has no `in`)
            return None
        return str(self.call.attrs[BUILTIN])

    @property
    def storages(self) -> set[str]:
        """The storage types of the operands and the result, from the attributes."""
        present = set(() if self.call.attrs is None else self.call.attrs.keys())
        return {self.quantized(name).dtype for name in present & {"in_type", "lhs_type", "rhs_type", "out_type"}}

    def ints(self, name: str, length: int, least: int) -> tuple[int, ...]:
        values = tuple(int(value) for value in self.attr(name))
        self.require(
            len(values) == length and all(value >= least for value in values),
            f"{name} must be {length} integers of at least {least}, not {list(values)}",
        )
        return values

    def tensor(self, index: int, rank: int | None = None) -> tuple[tuple[int, ...], str]:
        """Returns the static shape and the dtype of an operand."""
        return self.static(self.call.args[index].ty, f"operand {index}", rank)

    def static(self, type_: Any, what: str, rank: int | None = None) -> tuple[tuple[int, ...], str]:
        if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
            self.fail(f"{what} is not a tensor of known shape")
        dims = tuple(type_.shape.values)
        self.require(rank is None or len(dims) == rank, f"{what} has {len(dims)} dimensions, not {rank}")
        return tuple(self.dimension(dim, what) for dim in dims), str(type_.dtype)

    def dimension(self, dim: Any, what: str) -> int:
        value = getattr(dim, "value", None)
        if value is None:
            self.fail(f"{what} has a dimension that is not a constant")
        return int(value)

    @property
    def is_simulated(self) -> bool:
        """True if the operands are stored integers in float32 tensors."""
        is_real = self.call.attrs is not None and str(dict(self.call.attrs.items()).get("accum_dtype")) == "float32"
        return is_real and self.tensor(0)[1] == "float32"

    def stored(self, index: int, quantized: QuantizedType, rank: int | None = None) -> tuple[int, ...]:
        """Returns the shape of an operand. The operand must fit `quantized` and have its dtype, or be float32 if the
        operation is simulated.
        """
        shape, dtype = self.tensor(index, rank)
        if dtype != (
            "float32" if self.is_simulated else quantized.dtype
        ):  # not `require`, because formatting a type with a thousand scales is slow
            self.fail(f"operand {index} is {dtype}, but its type is {quantized}")
        self.fits(shape, quantized)
        return shape

    def fits(self, shape: tuple[int, ...], quantized: QuantizedType) -> None:
        """Requires that a tensor of `shape` can have the type `quantized`."""
        misfit = quantized.misfit(shape)
        if misfit is not None:
            self.fail(misfit)

    def window(self, shape: Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, int]:
        """Returns the output height and width of a sliding window over `[N, H, W, C]`."""
        top, left, bottom, right = self.ints("padding", 4, 0)
        strides = self.ints("strides", 2, 1)
        padded = (shape[1] + top + bottom, shape[2] + left + right)
        sizes = []
        for size, extent, stride, step in zip(padded, kernel, strides, dilation, strict=True):
            span = step * (extent - 1) + 1
            self.require(0 < span <= size, f"a window of {span} does not fit {size} padded elements")
            sizes.append((size - span) // stride + 1)
        return sizes[0], sizes[1]

    def integer(self, name: str) -> int:
        return int(self.attr(name))

    def floating(self, name: str) -> float:
        return float(self.attr(name))

    @property
    def is_adaptive(self) -> bool:
        """True if a pooling has a given output size."""
        return self.call.attrs is not None and "adaptive" in self.call.attrs.keys() and self.flag("adaptive")  # noqa: SIM118

    def flag(self, name: str) -> bool:
        return bool(self.attr(name))


def value_of(expr: relax.Expr) -> Array | None:
    """Returns the value of a constant, or None for anything that is computed."""
    return np.asarray(expr.value.numpy()) if isinstance(expr, tvm.ir.GenericConst) else None
