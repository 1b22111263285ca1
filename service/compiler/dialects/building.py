"""Builds graphs of `qnn.*` operators by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import tvm
from tvm import relax

from service.compiler.dialects.reading import constant
from service.compiler.importers.builder.module import At, param, unique_specs
from service.compiler.importers.imported import ImportedModel
from service.compiler.lowering.passes import run_graph_passes
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.parser import parse_module
from service.compiler.qnn.printer import complete_text_of, text_of
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature


class Graph:
    """Builds a module:

    with qnn.Graph() as graph:
        x = graph.input("x", (1, 4), "int8")
        graph.output(y=graph.emit(qnn.dequantize(x, qnn.type("!quant.uniform<i8:f32, 0.5>"))))
    module = graph.module
    """

    def __init__(self, at: At | None = None) -> None:
        """`at` is called with the name of each operator that is emitted, and the name of its result."""
        self._at = at
        self._builder = relax.BlockBuilder()
        self._inputs: list[relax.Var] = []
        self._body: list[tuple[relax.Var, relax.Expr]] = []
        self._outputs: dict[str, relax.Expr] = {}
        self._module: tvm.IRModule | None = None

    def __enter__(self) -> Self:
        return self

    def input(self, name: str, shape: Sequence[int], dtype: str) -> relax.Var:
        """Adds an input, and returns it as a tensor."""
        if any(var.name == name for var in self._inputs):
            raise InvalidInput(f"the graph has two inputs called {name!r}", tensor=name)
        self._inputs.append(param(name, shape, dtype))
        return self._inputs[-1]

    def constant(self, value: Array, dtype: str | None = None) -> relax.Constant:
        """Returns a constant tensor."""
        return constant(value, dtype)

    def emit(self, call: relax.Expr, name: str = "") -> relax.Var:
        """Adds an operator, and returns its result. Raises `IllTyped` if its operands do not fit together."""
        if self._at is not None:
            self._at(graph.name_of(call), name)
        typed = graph.typed(self._builder, call)
        var = relax.Var(name or f"v{len(self._body)}", typed.ty)
        self._body.append((var, call))
        return var

    def output(self, **outputs: relax.Expr) -> None:
        """Adds outputs by name. Their order is the order of the calls."""
        for name, value in outputs.items():
            if name in self._outputs:
                raise InvalidInput(f"the graph has two outputs called {name!r}", tensor=name)
            self._outputs[name] = value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._module = self._build()

    @property
    def module(self) -> Module:
        """The graph as a module, after the `with` block."""
        if self._module is None:
            raise InvalidInput("the graph is not complete: read its module after the with block")
        return Module(self._module)

    def _build(self) -> tvm.IRModule:
        if not self._inputs or not self._outputs:
            raise InvalidInput("a graph needs at least one input and one output")
        builder = relax.BlockBuilder()
        values: dict[relax.Var, relax.Expr] = {var: var for var in self._inputs}
        with builder.function("main", self._inputs):
            with builder.dataflow():
                for var, call in self._body:
                    placed = relax.Call(
                        call.op, [graph.substitute(arg, values) for arg in call.args], call.attrs, call.ty_args
                    )
                    values[var] = graph.emit(builder, placed, str(var.name))
                outputs = [builder.emit_output(graph.substitute(each, values)) for each in self._outputs.values()]
            builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        return builder.get()


class Module:
    """A graph of `qnn.*` and plain operators.

    Attributes:
        ir: the TVM module, with the function `main`.
    """

    def __init__(self, ir: tvm.IRModule) -> None:
        self.ir = ir

    @staticmethod
    def parse(text: str) -> Module:
        """Returns the module whose text is `text`. Raises `InvalidText`, with the line."""
        return Module(parse_module(text))

    @property
    def text(self) -> str:
        """The text, with the values of all constants. `parse` reads it."""
        return complete_text_of(self.ir)

    def save(self, path: str | Path) -> None:
        """Writes the text to a file, which `octet compile` reads."""
        Path(path).write_text(self.text)

    def evaluate(self, *inputs: Array, numerics: str) -> list[Array]:
        """Returns the outputs for these inputs, computed in NumPy by the oracle of a numerics mode."""
        return oracle.run(self.ir, get_mode(numerics), list(inputs))

    def run_passes(self, *names: str, numerics: str, target: str = "host") -> Module:
        """Returns the module after these passes of the compiler, in this order.

        Raises:
            InvalidInput: no pass has this name, or its result is not a graph.
        """
        return Module(run_graph_passes(self.ir, names, numerics, target))

    def __repr__(self) -> str:
        return text_of(self.ir)


def imported_from(made: Graph, format: str) -> ImportedModel:
    """Returns a complete graph as the result of an importer."""
    module = made.module.ir
    results = graph.results_of(graph.main_of(module))
    inputs = unique_specs([_end(str(var.name), var) for var in made._inputs], "input")
    outputs = unique_specs([_end(n, var) for n, var in zip(made._outputs, results, strict=True)], "output")
    return ImportedModel(module, ModelSignature(inputs, outputs), format)


def _end(name: str, value: relax.Expr) -> tuple[str, str, tuple[int, ...], None]:
    return name, str(value.ty.dtype), graph.shape_of(value), None
