"""Prints tensor programs as CUDA C++, one operation per line.

Every operation is printed so that it computes the same bits as the code that is generated for a CPU
(`kernels/cuda/source/plain.cuh`). Products and sums are not contracted to fused multiply-adds: an option of NVRTC
disables contraction on GPUs, and LLVM's arithmetic fences prevent it on CPUs. An operation that cannot be printed
raises
`Unsupported`.

Only the functions of `spelling.INEXACT` may differ in their last bits. A CPU calls its C library and a GPU calls CUDA's
library, and both have errors of one or two units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import tvm
from tvm import tirx

from service.compiler.lowering.gpu.spelling import (
    BINARY,
    EXACT,
    INEXACT,
    OVERLOADED,
    REINTERPRETED,
    constant,
    type_name,
)
from service.core.errors import Unsupported


class Printer:
    """Prints statements in order.

    Attributes:
        lines: the lines of C++ so far.
        loaded, stored: the buffers that these lines read and write.
        inexact: the functions of `spelling.INEXACT` that these lines call.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.loaded: list[tirx.Var] = []
        self.stored: list[tirx.Var] = []
        self.inexact: set[str] = set()
        self._depth = 1
        self._numbers = 0
        self._made: list[tvm.ir.Expr] = []  # keeps expressions alive, so that their addresses stay unique
        self._names: dict[int, str] = {}  # maps the address of a variable or buffer to its name
        self._places: dict[
            int, tuple[tirx.BufferStore, str]
        ] = {}  # maps a buffer's address to (store of its element, variable that `hold` declared)
        # The values computed so far. The dictionary of a scope maps an operation (its text or address) to the variable
        # with its value.
        self._scopes: list[dict[str | int, str]] = [{}]

    # -- lines that callers print between statements

    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, head: str, *, repeated: bool = False) -> Iterator[None]:
        """Prints `head { … }`. If `repeated`, the block is a loop, which does not reuse values computed before it."""
        self.line(f"{head} {{")
        self._depth += 1
        kept = self._scopes
        self._scopes = [{}] if repeated else [*kept, {}]
        yield
        self._scopes = kept
        self._depth -= 1
        self.line("}")

    def define(self, variable: tirx.Var, text: str) -> None:
        """Declares `variable` as a C++ constant with the value `text`."""
        name = self._named(variable, "v")
        self.line(f"const {type_name(_dtype(variable))} {name} = {text};")

    def alias(self, variable: tirx.Var, text: str) -> None:
        """Makes later uses of `variable` print `text`."""
        self._names[_address(variable)] = text

    def hold(self, store: tirx.BufferStore) -> str:
        """Declares a C++ variable that is used instead of the element that `store` writes, until `release` is
        called.
        """
        name = self._new("sum")
        self.line(f"{type_name(_dtype(store.buffer))} {name};")
        self._places[_address(store.buffer)] = (store, name)
        return name

    def release(self) -> None:
        """Stores the values of the variables that `hold` declared to their elements."""
        held, self._places = list(self._places.values()), {}
        for store, name in held:
            self.line(f"{self._element(store.buffer, store.indices, self.stored)} = {name};")

    def buffer_name(self, buffer: tirx.Var) -> str:
        return self._named(buffer, "buffer_")

    # -- statements

    def statement(self, stmt: tirx.Stmt) -> None:
        """Prints `stmt` as code of one thread.

        Raises:
            Unsupported: `stmt` contains something that cannot be printed.
        """
        handler = self._STATEMENTS.get(type(stmt).__name__)
        if handler is None:
            raise Unsupported(f"GPU code generation does not support the statement {type(stmt).__name__}")
        handler(self, stmt)

    def _sequence(self, stmt: tirx.SeqStmt) -> None:
        for each in stmt.seq:
            self.statement(each)

    def _for(self, stmt: tirx.For) -> None:
        if stmt.thread_binding is not None or int(stmt.min) != 0 or stmt.step is not None:
            raise Unsupported("GPU code generation does not support loops that are bound to threads or have a step")
        with self.loop(stmt.loop_var, self.value(stmt.extent)):
            self.statement(stmt.body)
        self._forget()

    @contextmanager
    def loop(self, variable: tirx.Var, extent: str) -> Iterator[None]:
        name, type_ = self._named(variable, "v"), type_name(_dtype(variable))
        with self.block(f"for ({type_} {name} = 0; {name} < {extent}; ++{name})", repeated=True):
            yield

    def _if(self, stmt: tirx.IfThenElse) -> None:
        with self.block(f"if ({self.value(stmt.condition)})"):
            self.statement(stmt.then_case)
        if stmt.else_case is not None:
            with self.block("else"):
                self.statement(stmt.else_case)
        self._forget()

    def _store(self, stmt: tirx.BufferStore) -> None:
        value = self.value(stmt.value)
        held = self._held_variable(stmt.buffer, stmt.indices)
        self.line(f"{held or self._element(stmt.buffer, stmt.indices, self.stored)} = {value};")
        self._forget()

    def _bind(self, stmt: tirx.Stmt) -> None:
        self.alias(stmt.var, self.value(stmt.value))

    def _realize(self, stmt: tirx.Stmt) -> None:
        if _is_true(stmt.predicate):
            self._run(stmt)
            return
        with self.block(f"if ({self.value(stmt.predicate)})"):
            self._run(stmt)
        self._forget()

    def _run(self, stmt: tirx.Stmt) -> None:
        block = stmt.block
        if block.match_buffers:
            raise Unsupported(
                f"GPU code generation does not support block {block.name_hint}, which matches parts of buffers"
            )
        for axis, value in zip(block.iter_vars, stmt.iter_values, strict=True):
            self.alias(axis.var, self.value(value))
        if block.init is not None:
            reduced = [axis for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
            first = [f"{self.value(axis.var)} == {self.value(axis.dom.min)}" for axis in reduced]
            with self.block(f"if ({' && '.join(first)})"):
                self.statement(block.init)
            self._forget()
        self.statement(block.body)

    def _allocate(self, stmt: tirx.Stmt) -> None:
        """Prints nothing, because the buffer is an operand of the function."""

    _STATEMENTS: Mapping[str, Callable[..., None]] = {
        "SeqStmt": _sequence,
        "For": _for,
        "IfThenElse": _if,
        "BufferStore": _store,
        "Bind": _bind,
        "SBlockRealize": _realize,
        "AllocBuffer": _allocate,
    }

    # -- expressions

    def value(self, expr: tvm.ir.Expr) -> str:
        """Returns the name of the variable with the value of `expr`, or its text if it is a constant."""
        if isinstance(expr, tirx.Var):
            return self._names[_address(expr)]
        if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
            return constant(expr.value, _dtype(expr))
        address = _address(expr)
        found = self._computed(address)
        if found is None:
            found = self._scopes[-1][address] = self._compute(expr)
        return found

    def _compute(self, expr: tvm.ir.Expr) -> str:
        if isinstance(expr, tirx.Let):
            self.alias(expr.var, self.value(expr.value))
            return self.value(expr.body)
        if isinstance(expr, tvm.ir.Call) and expr.op.name == "prim.if_then_else":
            return self._choice(expr)
        text = self._text(expr)
        dtype = _dtype(expr)
        found = self._computed(f"{dtype} {text}")
        if found is None:
            found = self._new("t")
            self.line(f"const {type_name(dtype)} {found} = {text};")
            self._scopes[-1][f"{dtype} {text}"] = found
        return found

    def _text(self, expr: tvm.ir.Expr) -> str:
        """Returns the text of one operation. Its operands are variables or constants."""
        form = BINARY.get(type(expr))
        if isinstance(expr, tirx.NE) and _dtype(expr.a).startswith("float"):
            form = "differ({}, {})"
        if form is not None:
            return form.format(self.value(expr.a), self.value(expr.b))
        if isinstance(expr, tvm.ir.TensorLoad):
            return self._held_variable(expr.source, expr.indices) or self._element(
                expr.source, expr.indices, self.loaded
            )
        if isinstance(expr, tirx.Select):
            parts = (expr.condition, expr.true_value, expr.false_value)
            return "{} ? {} : {}".format(*map(self.value, parts))
        if isinstance(expr, tirx.Not):
            return f"!{self.value(expr.a)}"
        if isinstance(expr, tirx.Cast):
            return self._cast(expr)
        if isinstance(expr, tvm.ir.Call):
            return self._call(expr)
        raise Unsupported(f"GPU code generation does not support {type(expr).__name__}")

    def _choice(self, call: tvm.ir.Call) -> str:
        """Prints a branch. The side that is not chosen must not be computed, because it may read outside its buffer."""
        condition, *branches = call.args
        name = self._new("t")
        self.line(f"{type_name(_dtype(call))} {name};")
        for head, branch in zip((f"if ({self.value(condition)})", "else"), branches, strict=True):
            with self.block(head):
                self.line(f"{name} = {self.value(branch)};")
        return name

    def _cast(self, cast: tirx.Cast) -> str:
        value, source, target = self.value(cast.value), _dtype(cast.value), _dtype(cast)
        if not source.startswith("float") or target.startswith("float"):
            return f"static_cast<{type_name(target)}>({value})"
        if target == "bool":
            return f"{value} != 0"
        if target == "uint64":
            raise Unsupported("GPU code generation does not support conversions of real numbers to uint64")
        # A conversion to a smaller integer keeps the low bits, as on a CPU.
        through = "int64" if target in ("int64", "uint32") else "int32"
        text = f"whole<{type_name(through)}>({value})"
        return text if through == target else f"static_cast<{type_name(target)}>({text})"

    def _call(self, call: tvm.ir.Call) -> str:
        name, args, dtype = call.op.name, list(call.args), _dtype(call)
        if name == "tirx.call_llvm_pure_intrin":
            name, args = str(tvm.target.codegen.llvm_get_intrinsic_name(int(args[0]))), args[1:]
        values = [self.value(arg) for arg in args]
        if name in ("llvm.arithmetic.fence", "prim.likely", "tirx.likely"):
            return values[0]
        if name in ("tirx.isnan", "prim.isnan"):
            return f"{values[0]} != {values[0]}"
        if name == "prim.clz":
            return f"leading_zeros({values[0]})"
        if name == "tirx.reinterpret" and (cast := REINTERPRETED.get((_dtype(args[0]), dtype))):
            return f"{cast}({values[0]})"
        if name in OVERLOADED:
            return f"{OVERLOADED[name]}({', '.join(values)})"
        function = EXACT.get(name)
        if function is None and name in INEXACT:
            function = name.removeprefix("tirx.")
            self.inexact.add(function)
        if function is None or dtype not in ("float32", "float64"):
            raise Unsupported(f"GPU code generation does not support {name} of {dtype}")
        return f"{function}{'f' if dtype == 'float32' else ''}({', '.join(values)})"

    # -- names

    def _element(self, buffer: tirx.Var, indices: Sequence[tvm.ir.Expr], used: list[tirx.Var]) -> str:
        if buffer.strides or not _is_zero(buffer.elem_offset):
            raise Unsupported(f"GPU code generation does not support the strided buffer {buffer.name}")
        if not any(each.same_as(buffer) for each in used):
            used.append(buffer)
        if not indices:
            return f"{self.buffer_name(buffer)}[0]"
        stride, index = 1, None
        for size, each in zip(reversed(buffer.shape), reversed(indices), strict=True):
            scaled = each if stride == 1 else each * tirx.const(stride, _dtype(each))
            index = scaled if index is None else scaled + index
            stride *= int(size)
        self._made.append(index)
        return f"{self.buffer_name(buffer)}[{self.value(index)}]"

    def _held_variable(self, buffer: tirx.Var, indices: Sequence[tvm.ir.Expr]) -> str | None:
        if _address(buffer) not in self._places:
            return None
        store, name = self._places[_address(buffer)]
        return name if list(map(self.value, indices)) == list(map(self.value, store.indices)) else None

    def _computed(self, key: str | int) -> str | None:
        return next((scope[key] for scope in reversed(self._scopes) if key in scope), None)

    def _forget(self) -> None:
        """Discards all computed values, because they may depend on an element that is now overwritten."""
        self._scopes = [{} for _ in self._scopes]

    def _named(self, variable: tirx.Var, prefix: str) -> str:
        if _address(variable) not in self._names:
            self._names[_address(variable)] = self._new(prefix)
        return self._names[_address(variable)]

    def _new(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}{self._numbers}"


def _dtype(expr: tvm.ir.Expr) -> str:
    return str(expr.dtype if hasattr(expr, "dtype") else expr.ty.dtype)


def _address(node: tvm.runtime.Object) -> int:
    return int(node.__chandle__())


def _is_true(expr: object) -> bool:
    return expr is True or (isinstance(expr, tirx.IntImm) and bool(expr.value))


def _is_zero(expr: object) -> bool:
    return isinstance(expr, tirx.IntImm) and int(expr.value) == 0
