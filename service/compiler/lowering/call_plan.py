"""The call plan of a compiled model: a list of calls that replaces the entry function.

After the last pass, `main` contains only calls of functions that write into their operands, and bindings that give a
tensor another name (aliases, reshapes). The parameters of `main` are the inputs, the constants and the activations. The
runtime needs no generated code to make these calls, so they are stored as a list (`core.artifacts.call_plan`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.core.artifacts.artifact import Slot
from service.core.artifacts.call_plan import ALIGNMENT_BYTES, Buffer, Call, CallPlan, Launch, Space
from service.core.errors import BuildFailed

# The prefix of generated functions. Without it, a function `exp` would have the name of the C library's function.
PLAIN_PREFIX = "octet_plain_"
_NOT_OF_SYMBOLS = re.compile(r"[^A-Za-z0-9_]")


def plain_symbol(name: str) -> str:
    """Returns the symbol of a module's function `name`. Characters that symbols cannot contain are written as
    numbers.
    """
    return PLAIN_PREFIX + _NOT_OF_SYMBOLS.sub(lambda found: f"_{ord(found[0])}_", name)


def call_plan(
    module: tvm.IRModule,
    constants: Sequence[Slot],
    activations: Sequence[Slot],
    states: int = 0,
    launches: Mapping[str, Launch] | None = None,
    longest: int = 0,
) -> CallPlan:
    """Returns the call plan of `module`, whose parameters are inputs, states, `constants` and `activations`, in order.

    An output that shares no memory with other tensors is written directly to the caller's memory. Other outputs are
    copied to the caller's memory at the end.

    Args:
        states: the number of states that the model keeps between calls. The states are the last inputs and the last
            outputs.
        longest: the greatest length of the inputs, if the last parameter before the constants is the length; else 0.
        launches: the launch parameters of each GPU kernel, by its symbol; None for a CPU.

    Raises:
        BuildFailed: the module contains something other than calls, which is a bug in Octet.
    """
    writer = _Writer(graph.main_of(module), constants, activations, states, has_length=longest > 0)
    plan = writer.plan(longest)
    return plan if launches is None else replace(plan, launches=tuple(launches[call.symbol] for call in plan.calls))


class _Writer:
    def __init__(
        self,
        function: relax.Function,
        constants: Sequence[Slot],
        activations: Sequence[Slot],
        states: int,
        *,
        has_length: bool,
    ) -> None:
        self._function, self._states = function, states
        inputs = len(function.params) - len(constants) - len(activations) - has_length
        self._tensors: dict[relax.Var, Buffer] = {}
        self._tuples: dict[relax.Var, relax.Tuple] = {}  # maps a variable to its tuple
        for number, parameter in enumerate(function.params[:inputs]):
            space, at = _numbered(number, inputs - states, Space.INPUT, Space.STATE)
            self._tensors[parameter] = Buffer(space, at, _size_bytes(parameter))
        if has_length:
            length = function.params[inputs]
            self._tensors[length] = Buffer(Space.LENGTH, 0, _size_bytes(length))
            inputs += 1
        layers = ((Space.CONSTANT, constants), (Space.ARENA, activations))
        positions = [(space, slot) for space, slots in layers for slot in slots]
        for parameter, (space, slot) in zip(function.params[inputs:], positions, strict=True):
            self._tensors[parameter] = Buffer(space, slot.offset_bytes, slot.end_bytes - slot.offset_bytes)

    def plan(self, longest: int) -> CallPlan:
        calls = []
        for variable, value in graph.bindings(self._function):
            call = self._call(variable, value)
            if call is not None:
                calls.append(call)
        results = graph.results_of(self._function)
        outputs = []
        for number, result in enumerate(results):
            space, at = _numbered(number, len(results) - self._states, Space.OUTPUT, Space.NEXT_STATE)
            outputs.append((self._tensors[result], Buffer(space, at, _size_bytes(result))))
        return _placed(calls, outputs, longest)

    def _call(self, variable: relax.Var, value: relax.Expr) -> tuple[str, tuple[Buffer, ...]] | None:
        """Returns the symbol and the operands of a call; None if the binding only names a tensor."""
        if isinstance(value, relax.Var):
            self._tensors[variable] = self._tensors[value]
            return None
        if isinstance(value, relax.Tuple):
            self._tuples[variable] = value
            return None
        if isinstance(value, relax.TupleGetItem):
            fields = (
                value.tuple_value if isinstance(value.tuple_value, relax.Tuple) else self._tuples[value.tuple_value]
            )
            self._tensors[variable] = self._tensors[fields[value.index]]
            return None
        if isinstance(value, relax.Call) and isinstance(value.op, relax.ExternFunc):
            return str(value.op.global_symbol), self._operands(value)
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            return plain_symbol(str(value.op.name_hint)), self._operands(value)
        if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.reshape":
            self._tensors[variable] = self._tensors[value.args[0]]
            return None
        raise BuildFailed(f"{variable.name} is not a call or an alias, so a call plan cannot contain it: {value}")

    def _operands(self, call: relax.Call) -> tuple[Buffer, ...]:
        return tuple(self._tensors[argument] for argument in call.args)


def _numbered(number: int, first: int, one: Space, other: Space) -> tuple[Space, int]:
    """Returns the space of tensor `number`, and the number of the tensor in that space.

    The tensors before number `first` are in the space `one`, the others in the space `other`.
    """
    return (one, number) if number < first else (other, number - first)


def _size_bytes(variable: relax.Var) -> int:
    dims = [int(dim) for dim in variable.ty.shape.values]
    return math.prod(dims) * np.dtype(str(variable.ty.dtype)).itemsize


def _placed(
    calls: Sequence[tuple[str, tuple[Buffer, ...]]], outputs: Sequence[tuple[Buffer, Buffer]], longest: int
) -> CallPlan:
    """Returns the call plan.

    An output that is alone in its part of the arena is written to the caller's memory instead. The arena then becomes
    smaller.
    """
    used = {operand for _, operands in calls for operand in operands} | {source for source, _ in outputs}
    moved: dict[Buffer, Buffer] = {}
    for source, output in outputs:
        is_alone = source.space is Space.ARENA and not any(_overlap(source, other) for other in used - {source})
        if is_alone and source not in moved:
            moved[source] = output
    numbers: dict[Buffer, int] = {}

    def number(buffer: Buffer) -> int:
        return numbers.setdefault(moved.get(buffer) or _shifted(buffer, moved), len(numbers))

    numbered = tuple(Call(symbol, tuple(map(number, operands))) for symbol, operands in calls)
    copies = tuple((number(source), number(output)) for source, output in outputs if moved.get(source) != output)
    ends = (buffer.at + buffer.bytes for buffer in numbers if buffer.space is Space.ARENA)
    return CallPlan(max(ends, default=0), tuple(numbers), numbered, copies, longest=longest)


def _overlap(one: Buffer, other: Buffer) -> bool:
    return one.space is other.space and one.at < other.at + other.bytes and other.at < one.at + one.bytes


def _shifted(buffer: Buffer, moved: Iterable[Buffer]) -> Buffer:
    """Returns `buffer` with the offset that it has after the buffers `moved` were removed from the arena."""
    if buffer.space is not Space.ARENA:
        return buffer
    before = (each.bytes for each in moved if each.at < buffer.at)
    gone = sum(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in before)
    return Buffer(buffer.space, buffer.at - gone, buffer.bytes)
