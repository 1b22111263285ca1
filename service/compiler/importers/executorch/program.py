"""An ExecuTorch program as plain, checked values, independent of the file's layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.core.models.arrays import Array


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a plan.

    Attributes:
        dtype: None for a type that Octet does not read.
        shape: in PyTorch's order of axes, whatever the order in memory is.
        is_open: true if the shape is only an upper bound.
        data: the elements of a constant; None if the plan computes the tensor or receives it.
    """

    dtype: str | None
    shape: tuple[int, ...]
    is_open: bool = False
    data: Array | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Listed:
    """A list of tensors, as indices of the plan's values. A negative index stands for None."""

    items: tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """The call of an operator.

    Attributes:
        name: with its namespace, and without its overload: `aten::permute_copy`.
        arguments: indices of the plan's values. The results follow the operands, twice.
    """

    name: str
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Delegated:
    """The call of a delegate.

    Attributes:
        arguments: indices of the plan's values, in the order of the delegate's externals.
    """

    delegate: int
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """A value that gets another index."""

    source: int
    target: int


@dataclass(frozen=True)
class Jump:
    """A branch, whose condition is a value of the plan."""

    condition: int


@dataclass(frozen=True, eq=False)
class Delegate:
    """A delegate's name, and the bytes that it receives."""

    name: str
    data: memoryview = field(repr=False)


Instruction = Kernel | Delegated | Move | Jump


@dataclass(frozen=True, eq=False)
class Plan:
    """A method of the program.

    Attributes:
        values: `Tensor`, `Listed`, numbers, strings, lists of them, or None.
        inputs, outputs: indices of `values`.
        named: data that the program names, such as the constants of delegates.
        other_methods: the names of the program's other methods.
    """

    name: str
    values: tuple[Any, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    delegates: tuple[Delegate, ...]
    named: Mapping[str, memoryview] = field(repr=False)
    other_methods: tuple[str, ...] = ()
