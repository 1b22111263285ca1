"""Inputs that become constants: the user fixes their values (`core.builds.fixed`), so that operators which depend on
them can be computed, and branches that depend on them chosen, during the import.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.importers.builder.module import Shapes, agreed_shape, check_names
from service.compiler.importers.names import printable, shortened
from service.core.builds.fixed import Fixed, Number, without_fixed
from service.core.errors import InvalidInput, Unsupported
from service.core.models.arrays import Array
from service.core.models.signature import DATATYPES, MOST_FIXED_ELEMENTS, FixedInput, TensorSpec, datatype_of

_SENDABLE = frozenset(DATATYPES.values())


@dataclass(frozen=True)
class Declared:
    """An input as the file declares it. An open dimension is None, or has a name; the whole shape is None if the rank
    is open.
    """

    name: str
    dtype: str
    shape: Sequence[int | str | None] | None


def check_inputs(names: Sequence[str], shapes: Shapes, fixed: Fixed) -> None:
    """Checks that the given shapes and values belong to inputs, and that an input is left.

    Raises:
        InvalidInput: the model has no such input.
    """
    check_names(fixed, names)
    left = [name for name in names if name not in fixed]
    if not left:
        raise InvalidInput("all inputs have a fixed value", hint="leave out --fix for the input that requests send")
    check_names(without_fixed(shapes, fixed), left)


def fixed_inputs(inputs: Sequence[Declared], shapes: Shapes, fixed: Fixed) -> tuple[FixedInput, ...]:
    """Returns the inputs that get a fixed value, in the file's order.

    Args:
        inputs: the inputs in the file's order.
        shapes, fixed: what the user gave, by name; `check_inputs` has accepted them.

    Raises:
        InvalidInput: the values do not have the type or the shape of their input.
        Unsupported: the input's type is not one that a value can have.
    """
    return tuple(
        _fixed_input(index, declared, shapes.get(declared.name), fixed[declared.name])
        for index, declared in enumerate(inputs)
        if declared.name in fixed
    )


def _fixed_input(index: int, declared: Declared, given: Sequence[int] | None, values: Sequence[Number]) -> FixedInput:
    label = shortened(declared.name)
    if declared.dtype not in _SENDABLE:
        raise Unsupported(f"the input {label} is {declared.dtype}, which cannot be fixed", tensor=label)
    shape = _shape(declared, given, len(values))
    count = math.prod(shape)
    if count > MOST_FIXED_ELEMENTS:
        raise InvalidInput(
            f"the input {label} of {list(shape)} has {count:,} elements, more than {MOST_FIXED_ELEMENTS:,}, so it "
            "cannot be fixed"
        )
    if len(values) not in (1, count) or not count:
        raise InvalidInput(
            f"the input {label} of {list(shape)} has {count} elements, but {len(values)} values are given",
            hint="give one value for each element, or one for all",
        )
    for value in values:
        if not _fits(value, declared.dtype):
            raise InvalidInput(f"the input {label} is {declared.dtype}, which cannot have the value {value}")
    return FixedInput(index, TensorSpec(printable(declared.name), datatype_of(declared.dtype), shape), tuple(values))


def _shape(declared: Declared, given: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Returns the shape of a fixed input. If one dimension is open and no shape is given, the number of values
    determines it.
    """
    own = declared.shape
    if own is None:
        return tuple(given) if given is not None else ((count,) if count > 1 else ())
    is_open = [not isinstance(size, int) for size in own]
    if given is None and sum(is_open) == 1:
        rest = math.prod(size for size in own if isinstance(size, int))
        size = count // rest if rest and count > 1 and not count % rest else 1
        return tuple(each if isinstance(each, int) else size for each in own)
    return agreed_shape(shortened(declared.name), own, given)


def _fits(value: Number, dtype: str) -> bool:
    """Returns true if a value of the type `dtype` is equal to `value`. A real type accepts its nearest value."""
    match np.dtype(dtype).kind:
        case "b":
            return value in (0, 1)
        case "f":
            return abs(value) <= float(np.finfo(dtype).max)
    limits = np.iinfo(dtype)
    return limits.min <= value <= limits.max and int(value) == value


def elements_of(fixed: FixedInput) -> Array:
    """Returns the elements as a read-only array."""
    values = fixed.elements()
    values.flags.writeable = False
    return values
