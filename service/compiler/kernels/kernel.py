"""A kernel: one function with flat buffers as parameters, and the constants that are passed to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import tirx

from service.compiler.locating import Declined
from service.core.artifacts import explanation
from service.core.artifacts.call_plan import Launch
from service.core.digest import Digest, digest_of
from service.core.models.arrays import Array

__all__ = ["Array", "Declined", "DeviceFunction", "Kernel"]


_CHANGING_LAYOUT = ("move", "pack", "unpack")
_REAL = ("rows", "float_")  # the prefixes of the families that compute float values

# Structural hash of a tensor program -> the programs with this hash, and the digests of their texts. Writing a program
# as text takes longer than comparing it with one that was written before, and a network of many steps has the same
# kernels in each of them.
_DIGESTS: dict[int, list[tuple[tirx.PrimFunc, Digest]]] = {}


@dataclass(frozen=True)
class DeviceFunction:
    """A function for a GPU.

    Attributes:
        source: CUDA C++ that includes no other files. The function is named `OCTET_KERNEL`.
        launch: the launch parameters.
    """

    source: str
    launch: Launch


@dataclass(frozen=True)
class Kernel:
    """The function that the compiler calls for one group of operators.

    The function's parameters are flat buffers: the inputs, then `constants` in order, then the output. The function
    depends on shapes, layouts and tiles, but not on values, so layers that differ only in their weights share one
    function.

    Attributes:
        family: the name in reports, for example `conv`.
        function: the hand-scheduled program: a tensor program for CPUs, or CUDA C++.
        constants: packed weights, biases and scales, as flat arrays.
        output_bytes: the size of the output buffer.
        facts: tile sizes and similar information for reports.
    """

    family: str
    function: tirx.PrimFunc | DeviceFunction
    constants: tuple[Array, ...]
    output_bytes: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def symbol(self) -> str:
        """The name by which the model calls the kernel."""
        return f"octet_{self.family}_{self.content[7:23]}"

    @property
    def kind(self) -> str:
        """The category to which reports add the kernel's time, one of `explanation.KINDS`."""
        if self.family in _CHANGING_LAYOUT:
            return explanation.LAYOUT
        return explanation.FLOAT if self.family.startswith(_REAL) else explanation.INTEGER

    @cached_property
    def content(self) -> Digest:
        """The digest of the program's text. Equal programs are compiled only once."""
        if isinstance(self.function, DeviceFunction):
            return digest_of(self.function.source.encode())
        return _digest_of_program(self.function)

    @property
    def tensor_program(self) -> tirx.PrimFunc:
        """The tensor program of a CPU kernel."""
        assert isinstance(self.function, tirx.PrimFunc)
        return self.function

    @property
    def launch(self) -> Launch | None:
        """The launch parameters of a GPU kernel; None for a CPU kernel."""
        return self.function.launch if isinstance(self.function, DeviceFunction) else None


def _digest_of_program(function: tirx.PrimFunc) -> Digest:
    """Returns the digest of the program's text, or that of an equal program whose variables may have other names."""
    known = _DIGESTS.setdefault(tvm_ffi.structural_hash(function), [])
    for other, digest in known:
        if tvm_ffi.structural_equal(other, function):
            return digest
    digest = digest_of(str(function).encode())
    known.append((function, digest))
    return digest
