"""Makes the length of a model's input a number that is bound when the model is called.

A module is built for its longest input. Shorter inputs are filled up with zeros. Operators that combine positions then
read elements that do not belong to the input. Here they are replaced by values without effect: by zero before a sum, by
minus infinity before a maximum, by the zero point before a product of matrices. Every value at a position of the input
is then the value that a model of exactly this length computes, and values beyond it are ignored.

Requires: the module of the longest input, and the module of a shorter one, both as imported.
Ensures: `main` has one more parameter, the last: the length, `[1]` int32. With a length of n, the first n positions of
    every output are those of the same model imported for n positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.lengths.axes import LengthAxes, Unbound, length_axes
from service.compiler.qnn.lengths.rules import Site, rule_of
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.passes import run_pass

__all__ = ["PARAMETER", "Unbound", "bind_length"]

PARAMETER = "length"  # the name of the added parameter


def bind_length(module: tvm.IRModule, shorter: tvm.IRModule, mode: Mode) -> tvm.IRModule:
    """Returns `module` with the length of its input as a parameter.

    Constants are folded first: positions that an exporter computes from the length then become numbers.

    Raises:
        Unbound: an operator combines positions in a way that depends on their number, or the modules differ.
    """
    module, shorter = _folded(module, mode), _folded(shorter, mode)
    return _Writer(length_axes(module, shorter), mode).rewritten(graph.main_of(module))


def _folded(module: tvm.IRModule, mode: Mode) -> tvm.IRModule:
    for name in ("weights kept", "constants folded"):
        module, _ = run_pass(name, module, mode)
    return module


class _Writer:
    def __init__(self, lengths: LengthAxes, mode: Mode) -> None:
        self._lengths, self._mode = lengths, mode
        self._length = relax.Var(PARAMETER, relax.TensorType([1], "int32"))
        self._builder = relax.BlockBuilder()
        self._inside: dict[int, relax.Expr] = {}  # trailing axes -> which positions are inside, [length, 1, …]

    def rewritten(self, function: relax.Function) -> tvm.IRModule:
        builder = self._builder
        params = [relax.Var(each.name, each.ty) for each in function.params]
        environment: dict[relax.Var, relax.Expr] = dict(zip(function.params, params, strict=True))
        with builder.function("main", [*params, self._length]):
            with builder.dataflow():
                for var, value in graph.bindings(function):
                    environment[var] = self._binding(var, value, environment)
                outputs = [
                    builder.emit_output(graph.substitute(each, environment)) for each in graph.results_of(function)
                ]
            builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        return builder.get()

    def _binding(self, var: relax.Var, value: relax.Expr, environment: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
        if not isinstance(value, relax.Call):
            return graph.substitute(value, environment)
        name = str(var.name)
        counts = self._lengths.counts.get(var, ())
        args = [
            self._count(arg) if index in counts else graph.substitute(arg, environment)
            for index, arg in enumerate(value.args)
        ]
        if not any(self._lengths.axes.get(read) for read in graph.variables(value)):
            return graph.emit(self._builder, graph.with_args(value, args), name)

        def emit(made: relax.Expr) -> relax.Expr:
            return graph.emit(self._builder, made, name)

        result = self._lengths.of(var)
        site = Site(value, args, self._lengths, result, self._fill, emit, self._mode, self._length)
        return graph.emit(self._builder, rule_of(value)(site), name)

    def _count(self, constant: relax.Expr) -> relax.Expr:
        """Returns the length in the type and shape of `constant`, which has one element."""
        count = graph.emit(self._builder, relax.op.astype(self._length, str(constant.ty.dtype)), "count")
        return graph.emit(self._builder, relax.op.reshape(count, list(graph.shape_of(constant))), "count")

    def _fill(self, x: relax.Expr, axis: int, value: float) -> relax.Expr:
        """Replaces the elements of `x` beyond the length along `axis` by `value`."""
        dtype = str(x.ty.dtype)
        other = relax.const(np.full((), value, dtype), dtype)
        filled = relax.op.where(self._positions(len(graph.shape_of(x)) - 1 - axis), x, other)
        return graph.emit(self._builder, filled, f"{getattr(x, 'name', '')}_inside")

    def _positions(self, trailing: int) -> relax.Expr:
        """Returns which positions are inside the input, `[length, 1, …]` with `trailing` axes of length 1."""
        if trailing not in self._inside:
            numbers = np.arange(self._lengths.length, dtype=np.int32).reshape([-1] + [1] * trailing)
            less = relax.op.less(relax.const(numbers), self._length)
            self._inside[trailing] = graph.emit(self._builder, less, f"inside_{trailing}")
        return self._inside[trailing]
