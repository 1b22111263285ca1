"""The call plan of an artifact: the functions of its library that run, their order, and the memory they work on.

Shapes are static and memory is planned at compile time, so the plan is all that the runtime needs to run a model. The
compiler writes the plan. The runtime (`service/native/runtime`) checks it again, resolves its addresses once, and
executes it call by call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from service.core.artifacts.compatibility import PLAN_VERSION, check_plan
from service.core.errors import CorruptBlob

ALIGNMENT_BYTES = 64  # alignment of each tensor: the size of a cache line and of the widest vector register
_MEMBERS = frozenset({"version", "arena_bytes", "buffers", "calls", "copies", "launches", "longest"})
MOST_BUFFERS, MOST_CALLS, MOST_OPERANDS = 1 << 20, 1 << 18, 4096
_MOST_BYTES = 1 << 40
_LENGTH_BYTES, _MOST_LENGTH = 4, (1 << 31) - 1
# The limits of all GPUs: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_MOST_BLOCKS = ((1 << 31) - 1, 65535, 65535)
_MOST_THREADS = (1024, 1024, 64)
_MOST_THREADS_OF_A_BLOCK = 1024
MOST_SHARED_BYTES = 227 << 10  # shared memory of a block on the largest GPU
_SYMBOL = re.compile(r"octet_[A-Za-z0-9_.$]{1,249}")


class Space(StrEnum):
    """The memory that contains a buffer: an input, output or state tensor of the caller, or memory of the model.

    The length is an int32: how many positions of the inputs belong to the call.
    """

    INPUT = "input"
    OUTPUT = "output"
    STATE = "state"
    NEXT_STATE = "next_state"
    CONSTANT = "constant"
    ARENA = "arena"
    LENGTH = "length"


_BY_OFFSET = (Space.CONSTANT, Space.ARENA)


@dataclass(frozen=True)
class Buffer:
    """The memory of an operand.

    Attributes:
        space: the memory that contains the buffer.
        at: the index of the input, output or state; for `CONSTANT` and `ARENA` the offset in bytes, a multiple of 64.
        bytes: the buffer's size.
    """

    space: Space
    at: int
    bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.at <= _MOST_BYTES or not 0 <= self.bytes <= _MOST_BYTES:
            raise CorruptBlob(f"a buffer of {self.bytes} bytes at {self.at} is not possible")
        if self.space in _BY_OFFSET and self.at % ALIGNMENT_BYTES:
            raise CorruptBlob(f"a buffer has the offset {self.at}, which is not a multiple of {ALIGNMENT_BYTES}")


@dataclass(frozen=True)
class Call:
    """A call of the library's function `symbol`. `operands` are indices into the plan's buffers."""

    symbol: str
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """The launch parameters of a call's kernel on a GPU.

    Attributes:
        grid: the number of blocks along x, y and z.
        block: the number of threads in a block along x, y and z.
        shared_bytes: the dynamic shared memory of a block.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0

    def __post_init__(self) -> None:
        if not _within(self.grid, _MOST_BLOCKS):
            raise CorruptBlob(f"no GPU supports a grid of {_by(self.grid)} blocks")
        if not _within(self.block, _MOST_THREADS) or math.prod(self.block) > _MOST_THREADS_OF_A_BLOCK:
            raise CorruptBlob(f"no GPU supports a block of {_by(self.block)} threads")
        if not 0 <= self.shared_bytes <= MOST_SHARED_BYTES:
            raise CorruptBlob(f"no GPU has {self.shared_bytes} bytes of shared memory for a block")

    def to_json(self) -> list[int]:
        return [*self.grid, *self.block, self.shared_bytes]

    @staticmethod
    def from_json(launch: Sequence[Any]) -> Launch:
        gx, gy, gz, bx, by, bz, shared_bytes = map(_number, launch)
        return Launch((gx, gy, gz), (bx, by, bz), shared_bytes)


def _within(sizes: Sequence[int], most: Sequence[int]) -> bool:
    return len(sizes) == len(most) and all(1 <= size <= limit for size, limit in zip(sizes, most, strict=True))


def _by(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


@dataclass(frozen=True)
class CallPlan:
    """The steps of one call of a model.

    Attributes:
        arena_bytes: the size of the arena, the memory for intermediate tensors of one instance.
        buffers: the buffers of all operands, each once.
        calls: the function calls, in order.
        copies: pairs of buffers of equal size, source and destination. The source is copied to the destination after
            the calls, for outputs that no function writes.
        launches: the launch parameters of each call, in the order of the calls; None if the calls run on the CPU.
        longest: the greatest length of the inputs; 0 if the inputs have one length only.

    Raises:
        CorruptBlob: the plan is too large, refers to a buffer that does not exist, or its parts do not match.
    """

    arena_bytes: int
    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]
    copies: tuple[tuple[int, int], ...] = ()
    launches: tuple[Launch, ...] | None = None
    longest: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.longest <= _MOST_LENGTH or (self.longest and self.launches is not None):
            raise CorruptBlob(f"a plan cannot have inputs of up to {self.longest} positions")
        if len(self.buffers) > MOST_BUFFERS or len(self.calls) > MOST_CALLS or not 0 <= self.arena_bytes <= _MOST_BYTES:
            raise CorruptBlob(f"a plan of {len(self.calls)} calls and {len(self.buffers)} buffers is too large")
        for buffer in self.buffers:
            if buffer.space is Space.LENGTH and (not self.longest or buffer.at or buffer.bytes != _LENGTH_BYTES):
                raise CorruptBlob("a buffer is not a length, or the plan has no longest one")
            if buffer.space is Space.ARENA and buffer.at + buffer.bytes > self.arena_bytes:
                raise CorruptBlob(
                    f"a buffer ends at {buffer.at + buffer.bytes}, but the arena has only {self.arena_bytes} bytes"
                )
        for number, call in enumerate(self.calls):
            if _SYMBOL.fullmatch(call.symbol) is None or len(call.operands) > MOST_OPERANDS:
                raise CorruptBlob(f"call {number} has an invalid function name or more than {MOST_OPERANDS} operands")
            self._check(call.operands, f"call {number} ({call.symbol})")
        for source, to in self.copies:
            self._check((source, to), "a copy")
            if self.buffers[source].bytes != self.buffers[to].bytes:
                raise CorruptBlob(f"buffers {source} and {to} of a copy have different sizes")
        if self.launches is not None and len(self.launches) != len(self.calls):
            raise CorruptBlob(f"a plan of {len(self.calls)} calls has {len(self.launches)} launches")

    def _check(self, operands: Sequence[int], what: str) -> None:
        for operand in operands:
            if not 0 <= operand < len(self.buffers):
                raise CorruptBlob(f"{what} uses buffer {operand}, but the plan has {len(self.buffers)} buffers")

    @property
    def constant_bytes(self) -> int:
        """The offset of the end of the last constant in the constants layer."""
        return max((each.at + each.bytes for each in self.buffers if each.space is Space.CONSTANT), default=0)

    def to_json(self) -> dict[str, Any]:
        plan: dict[str, Any] = {
            "version": PLAN_VERSION,
            "arena_bytes": self.arena_bytes,
            "buffers": [[buffer.space.value, buffer.at, buffer.bytes] for buffer in self.buffers],
            "calls": [[call.symbol, list(call.operands)] for call in self.calls],
            "copies": [list(copy) for copy in self.copies],
        }
        if self.launches is not None:
            plan["launches"] = [launch.to_json() for launch in self.launches]
        if self.longest:
            plan["longest"] = self.longest
        return plan

    @staticmethod
    def from_json(plan: Mapping[str, Any]) -> CallPlan:
        """Parses the result of `to_json`.

        Raises:
            CorruptBlob: the plan is malformed.
            Unsupported: the plan was written by an incompatible release.
        """
        try:
            check_plan(plan, _MEMBERS)
            return CallPlan(
                _number(plan["arena_bytes"]),
                tuple(Buffer(Space(space), _number(at), _number(size)) for space, at, size in plan["buffers"]),
                tuple(Call(str(symbol), tuple(map(_number, operands))) for symbol, operands in plan["calls"]),
                tuple((_number(source), _number(to)) for source, to in plan["copies"]),
                tuple(map(Launch.from_json, plan["launches"])) if "launches" in plan else None,
                _number(plan.get("longest", 0)),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CorruptBlob(f"the call plan cannot be read: {error}") from error


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an integer")
    return value
