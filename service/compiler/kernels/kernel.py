"""A kernel: one function over flat buffers, and the constants that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tvm import tirx

from service.compiler.locating import Declined
from service.core import explanation
from service.core.arrays import Array
from service.core.call_plan import Launch
from service.core.digest import Digest, digest_of

__all__ = ["Array", "Declined", "DeviceFunction", "Kernel"]


_CHANGING_LAYOUT = ("move", "pack", "unpack")
_REAL = ("rows", "float_")  # what names of families that compute real values begin with


@dataclass(frozen=True)
class DeviceFunction:
    """A function that a card runs.

    Attributes:
        source: CUDA C++ that needs no other file; the function is called `OCTET_KERNEL`.
        launch: how it is launched.
    """

    source: str
    launch: Launch


@dataclass(frozen=True)
class Kernel:
    """The function that the compiler calls for one group of operators.

    The function's parameters are flat buffers: the inputs, then `constants` in order, then the output. It says
    everything about shapes, layouts and tiles, and nothing about values, so layers that differ in weights only share
    one function.

    Attributes:
        family: what it is called in reports, e.g. `conv`.
        function: the program, scheduled by hand: a tensor program, or CUDA C++.
        constants: packed weights, biases, scales; flat.
        output_bytes: size of the output buffer.
        facts: tile sizes and the like, for people.
    """

    family: str
    function: tirx.PrimFunc | DeviceFunction
    constants: tuple[Array, ...]
    output_bytes: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def symbol(self) -> str:
        """The name by which the model calls it."""
        return f"octet_{self.family}_{self.content[7:23]}"

    @property
    def kind(self) -> str:
        """What its time counts as in reports, of `explanation.KINDS`."""
        if self.family in _CHANGING_LAYOUT:
            return explanation.LAYOUT
        return explanation.FLOAT if self.family.startswith(_REAL) else explanation.INTEGER

    @cached_property
    def content(self) -> Digest:
        """The digest of the program's text: equal programs are compiled once."""
        of_card = isinstance(self.function, DeviceFunction)
        return digest_of((self.function.source if of_card else str(self.function)).encode())

    @property
    def tensor_program(self) -> tirx.PrimFunc:
        """The function, of a kernel that a CPU runs."""
        assert isinstance(self.function, tirx.PrimFunc)
        return self.function

    @property
    def launch(self) -> Launch | None:
        """How a card launches it; None where a CPU calls it."""
        return self.function.launch if isinstance(self.function, DeviceFunction) else None
