"""Resolves the variables of a module, and recognizes expressions that a function of an importer creates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from service.compiler.importers.real import Real
from service.compiler.qnn import graph
from service.compiler.qnn.operation import IllTyped, value_of
from service.compiler.qnn.plain import fold

_MOST_NEAR = 64
Make = Callable[[Real], relax.Expr]


class Definitions:
    def __init__(self, function: relax.Function) -> None:
        self._values: dict[relax.Var, relax.Expr] = dict(graph.bindings(function))

    def of(self, expr: relax.Expr) -> relax.Expr:
        """Returns the expression that is bound to a variable. Other expressions, and inputs of the model, are returned
        unchanged.
        """
        while isinstance(expr, relax.Var) and expr in self._values:
            expr = self._values[expr]
        return expr

    def variable(self, expr: relax.Expr) -> relax.Var:
        """Follows aliases of a variable to the variable that they rename, and returns it."""
        while isinstance(expr, relax.Var) and isinstance(self._values.get(expr), relax.Var):
            expr = self._values[expr]
        return expr

    def is_call(self, expr: relax.Expr, *names: str) -> bool:
        """Returns true if `expr` is a call of one of the given Relax operators."""
        found = self.of(expr)
        return isinstance(found, relax.Call) and str(getattr(found.op, "name", "")).removeprefix("relax.") in names

    def near(self, expr: relax.Expr) -> Iterator[relax.Expr]:
        """Yields the operands of `expr` and their operands, and so on, nearest first. Yields at most `_MOST_NEAR`."""
        front, seen = [self.of(expr)], 0
        while front and seen < _MOST_NEAR:
            call = front.pop(0)
            for arg in call.args if isinstance(call, relax.Call) else ():
                yield arg
                seen += 1
                front.append(self.of(arg))

    def is_near(self, expr: relax.Expr, name: str) -> bool:
        """Returns true if one of these operands is a call of the given Relax operator."""
        return any(self.is_call(arg, name) for arg in self.near(expr))

    def constants_near(self, expr: relax.Expr) -> list[relax.Expr]:
        return [arg for arg in self.near(expr) if value_of(arg) is not None]

    def numbers_near(self, expr: relax.Expr) -> list[float]:
        """Returns the distinct float scalars among these operands."""
        values = [np.asarray(value_of(constant)) for constant in self.constants_near(expr)]
        return [*dict.fromkeys(float(data.reshape(())) for data in values if data.size == 1 and data.dtype.kind == "f")]

    def types_near(self, expr: relax.Expr) -> list[relax.TensorType]:
        """Returns the distinct types of the float32 variables among these operands."""
        found = [arg.ty for arg in self.near(expr) if isinstance(arg, relax.Var) and str(arg.ty.dtype) == "float32"]
        return list({str(each): each for each in found}.values())

    def operand(self, expr: relax.Expr, kind: relax.TensorType, make: Make) -> relax.Var | None:
        """If there is a variable x of type `kind` from which `make` creates `expr`, returns x; otherwise None."""
        x, builder = relax.Var("x", kind), relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                try:
                    made = _emitted(builder, make(Real(lambda part, _: _emitted(builder, part), x)))
                except (IllTyped, IndexError, ValueError):  # the parameters are not valid for this operand
                    made = x
                end = builder.emit_output(made)
            builder.emit_func_output(end)
        function = graph.main_of(builder.get())
        comparison = _Comparison(Definitions(function), self, function.params[0])
        is_same = not made.same_as(x) and comparison.same(graph.results_of(function)[0], expr)
        return comparison.x if is_same else None


def _emitted(builder: relax.BlockBuilder, part: relax.Expr) -> relax.Expr:
    """Emits a part in the way importers do: an expression of constants becomes a constant."""
    return fold(builder, part, lambda _: True) or graph.emit(builder, part)


class _Comparison:
    """Compares a pattern with an expression of a module."""

    def __init__(self, pattern: Definitions, module: Definitions, param: relax.Var) -> None:
        self._pattern, self._module, self._param = pattern, module, param
        self._seen: set[tuple[relax.Var, relax.Var]] = set()
        self.x: relax.Var | None = None

    def same(self, one: relax.Expr, other: relax.Expr) -> bool:
        if isinstance(one, relax.Var) and one.same_as(self._param):
            if not isinstance(other, relax.Var) or (self.x is not None and not self.x.same_as(other)):
                return False
            self.x = other
            return bool(tvm_ffi.structural_equal(one.ty, other.ty))
        if isinstance(one, relax.Var) and isinstance(other, relax.Var):
            if (one, other) in self._seen:
                return True
            self._seen.add((one, other))
        one, other = self._pattern.of(one), self._module.of(other)
        if isinstance(one, relax.Var):  # the variable is an alias of the operand
            return self.same(one, other)
        if isinstance(one, relax.Call) and isinstance(other, relax.Call):
            alike = one.op.same_as(other.op) and bool(tvm_ffi.structural_equal(one.attrs, other.attrs))
            return alike and len(one.args) == len(other.args) and all(map(self.same, one.args, other.args))
        if isinstance(one, tvm.ir.GenericConst) and isinstance(other, tvm.ir.GenericConst):
            first, second = one.value.numpy(), other.value.numpy()
            return first.dtype == second.dtype and first.shape == second.shape and bool(np.array_equal(first, second))
        return type(one) is type(other) and bool(tvm_ffi.structural_equal(one, other))
