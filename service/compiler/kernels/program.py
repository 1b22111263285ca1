"""Builds the program of a kernel: a list of statements, with loops as `with` blocks and vectors as values.

This is a thin layer over TVM's tensor IR. It does not depend on instruction sets (see `vector.isa`) or on layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.ir import StringImm
from tvm.tirx import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    Ramp,
    SeqStmt,
    Var,
)

Expr = Any  # a tirx.PrimExpr, or a Python int for an index
Buffer = Any

# Without this, a local buffer would become a workspace on the heap, and accumulators would not stay in registers.
_KEEP_LOCAL = {"disable_lower_builtin": tirx.const(1, "bool")}


def index(value: Expr) -> Expr:
    return tirx.const(value, "int32") if isinstance(value, int) else value


def splat(value: Expr, lanes: int) -> Expr:
    """Returns a vector with `value` in every lane."""
    return tirx.Broadcast(value, lanes)


def shuffle(vector: Expr, lanes: Sequence[int]) -> Expr:
    """Returns the lanes of `vector` in the given order."""
    return tirx.Shuffle([vector], [tirx.const(lane, "int32") for lane in lanes])


def interleaved(one: Expr, other: Expr, lanes: int, *, upper: bool) -> Expr:
    """Interleaves the lanes of the lower halves of two vectors, or of their upper halves if `upper`."""
    begin = lanes // 2 if upper else 0
    positions = [position for lane in range(begin, begin + lanes // 2) for position in (lane, lanes + lane)]
    return tirx.Shuffle([one, other], [tirx.const(position, "int32") for position in positions])


def bits(dtype: str, value: Expr) -> Expr:
    """Reinterprets the bits of `value` as another type."""
    return tirx.reinterpret(dtype, value)


def intrinsic(dtype: str, name: str, *operands: Expr) -> Expr:
    """Calls an LLVM intrinsic without side effects."""
    return tirx.call_llvm_pure_intrin(dtype, name, *operands)


def address(buffer: Buffer, offset: Expr) -> Expr:
    """Returns the address of element `offset`, for an intrinsic that reads or writes memory."""
    return tirx.address_of(BufferLoad(buffer, [index(offset)]))


def at_most(value: Expr, limit: int) -> Expr:
    return min(value, limit) if isinstance(value, int) else tirx.min(value, index(limit))


def divided(value: Expr, by: int) -> Expr:
    """Returns `value / by`, rounded up."""
    return -(-value // by) if isinstance(value, int) else tirx.floordiv(value + (by - 1), by)


class Register:
    """A vector variable that is assigned more than once. LLVM keeps it in a register if there are enough."""

    def __init__(self, program: Program, name: str, dtype: str, lanes: int) -> None:
        self._program, self._lanes = program, lanes
        self._buffer = tirx.decl_buffer((lanes,), dtype, name, scope="local")
        program.append(AllocBuffer(self._buffer, _KEEP_LOCAL))

    @property
    def value(self) -> Expr:
        return load(self._buffer, 0, self._lanes)

    @value.setter
    def value(self, value: Expr) -> None:
        self._program.store(self._buffer, 0, value, self._lanes)


def load(buffer: Buffer, offset: Expr, lanes: int) -> Expr:
    """Loads `lanes` consecutive elements from element `offset`. No alignment is assumed."""
    if lanes == 1:
        return BufferLoad(buffer, [index(offset)])
    return BufferLoad(buffer, [Ramp(index(offset), tirx.const(1, "int32"), lanes)])


def load_first(buffer: Buffer, offset: Expr, lanes: int, count: int) -> Expr:
    """Loads exactly `count` consecutive elements into a vector of `lanes` lanes. The other lanes are 0."""
    parts, done = [], 0
    while done < count:
        width = 1 << (count - done).bit_length() - 1
        parts.append(load(buffer, offset + done, width))
        done += width
    parts.append(splat(tirx.const(0, str(buffer.dtype)), lanes))
    return tirx.Shuffle(parts, [tirx.const(lane, "int32") for lane in range(lanes)])


class Program:
    """Collects the statements of one function."""

    def __init__(self) -> None:
        self._parameters: list[Buffer] = []
        self._blocks: list[list[Any]] = [[]]
        self._imported: dict[str, None] = {}
        self._names = 0

    def parameter(self, name: str, dtype: str, size: int) -> Buffer:
        """Adds a parameter: a flat buffer of `size` elements, aligned to 64 bytes."""
        buffer = tirx.decl_buffer((size,), dtype, name, data_alignment=64)
        self._parameters.append(buffer)
        return buffer

    def append(self, statement: Any) -> None:
        self._blocks[-1].append(statement)

    def store(self, buffer: Buffer, offset: Expr, value: Expr, lanes: int) -> None:
        at = index(offset) if lanes == 1 else Ramp(index(offset), tirx.const(1, "int32"), lanes)
        self.append(BufferStore(buffer, value, [at]))

    def perform(self, name: str, *operands: Expr) -> None:
        """Adds a call of an LLVM intrinsic with side effects. LLVM does not move it past loads and stores."""
        self.append(tirx.Evaluate(tirx.call_llvm_intrin("void", name, *operands)))

    def import_llvm(self, text: str) -> None:
        """Makes the functions in a text of LLVM IR available to `tirx.call_pure_extern`.

        The functions are inlined. They must be private, so that the object file defines only the kernel's symbol.
        """
        self._imported[text] = None

    def prefetch(self, buffer: Buffer, offset: Expr) -> None:
        """Prefetches the cache line of an element into the L2 cache. `offset` may be beyond the end of the buffer."""
        for_reading, to_second_level, data = (tirx.const(value, "int32") for value in (0, 2, 1))
        self.perform("llvm.prefetch", address(buffer, offset), for_reading, to_second_level, data)

    def store_first(self, buffer: Buffer, offset: Expr, vector: Expr, lanes: int, count: int) -> None:
        """Stores the first `count` lanes of `vector`, with stores whose sizes are powers of two."""
        done = 0
        while done < count:
            width = 1 << (count - done).bit_length() - 1
            part = vector if width == lanes else _part(vector, done, width)
            self.store(buffer, offset + done, part, width)
            done += width

    def bind(self, value: Expr, dtype: str = "int32") -> Expr:
        """Computes `value` once, at this point, and returns a variable. A Python integer is returned unchanged."""
        if isinstance(value, int):
            return value
        self._names += 1
        variable = Var(f"t{self._names}", dtype)
        self.append(Bind(variable, value))
        return variable

    def register(self, dtype: str, lanes: int) -> Register:
        self._names += 1
        return Register(self, f"r{self._names}", dtype, lanes)

    def workspace(self, size: int, dtype: str = "uint8") -> Buffer:
        """Allocates uninitialized memory for this thread, valid until the innermost loop ends, aligned to 64 bytes."""
        self._names += 1
        buffer = tirx.decl_buffer((size,), dtype, f"workspace{self._names}", data_alignment=64)
        self.append(AllocBuffer(buffer))
        return buffer

    def align_stack(self, vector: Expr, dtype: str, lanes: int) -> None:
        """Makes LLVM spill vectors to aligned addresses. Call it once, in the innermost parallel loop.

        LLVM aligns the stack only for variables that exist before register allocation. Without such a variable,
        spilled vectors are at multiples of 16 bytes, and three out of four loads of them cross a cache line.

        Args:
            vector: any vector; it is stored and never read.
        """
        self._names += 1
        buffer = tirx.decl_buffer((lanes,), dtype, f"anchor{self._names}", scope="local")
        self.append(AllocBuffer(buffer, {**_KEEP_LOCAL, "tirx.volatile": tirx.const(1, "bool")}))
        self.store(buffer, 0, vector, lanes)

    @contextmanager
    def loop(self, extent: Expr, name: str, *, parallel: bool = False) -> Iterator[Expr]:
        """Writes `for name in range(extent)`. A single iteration or an empty body becomes no loop.

        The iterations of a parallel loop may run in any order and on any thread.
        """
        if isinstance(extent, int) and extent == 1 and not parallel:
            yield 0
            return
        variable = Var(name, "int32")
        self._blocks.append([])
        yield variable
        statements = self._blocks.pop()
        if not statements:
            return  # TVM does not support empty loops
        body = _sequence(statements)
        kind = ForKind.PARALLEL if parallel else ForKind.SERIAL
        self.append(For(variable, tirx.const(0, "int32"), index(extent), kind, body))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """Makes the statements of the block conditional. A constant condition generates no branch."""
        self._blocks.append([])
        yield
        if isinstance(condition, bool):
            body = self._blocks.pop()
            self._blocks[-1] += body if condition else []
            return
        statements = self._blocks.pop()
        if statements:
            self.append(IfThenElse(condition, _sequence(statements), None))

    def function(self) -> PrimFunc:
        """Returns the function. Its buffers must not overlap."""
        body = _sequence(self._blocks[0])
        for text in self._imported:
            body = AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", StringImm(text), body)
        return PrimFunc(self._parameters, body).with_attr({"tirx.noalias": True})


def _part(vector: Expr, first: int, count: int) -> Expr:
    if count > 1:
        return shuffle(vector, range(first, first + count))
    return tirx.Shuffle([vector], [tirx.const(first, "int32")])


def _sequence(statements: list[Any]) -> Any:
    return statements[0] if len(statements) == 1 else SeqStmt(statements)
