"""Converts the operators of a model's graph, and of the subgraphs that operators run."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.importers.builder.module import At
from service.compiler.importers.tflite.complex import Complex
from service.compiler.importers.tflite.delegate import builtin_kernel, takes
from service.compiler.importers.tflite.dilation import join_dilated
from service.compiler.importers.tflite.model import Model, Operator, State, Subgraph
from service.compiler.importers.tflite.node import Emitted, Node, Value, constant_of, constants_of
from service.compiler.importers.tflite.operators import RULES
from service.compiler.importers.tflite.operators.spectral import COMPLEX_MOVES
from service.compiler.importers.tflite.support import check_support, dtypes_of
from service.compiler.importers.tflite.zero_scales import replace_zero_scales
from service.compiler.qnn.graph import shape_of
from service.core.errors import MalformedModel, Unsupported

_MOST_DEPTH = 16  # of subgraphs that run subgraphs
_MOST_OPERATORS = 20_000  # of subgraphs, each counted as often as it is run


class Converter:
    """Converts graphs into one function. Each run of a subgraph is converted anew, in place of the operator that runs
    it.
    """

    def __init__(self, model: Model, builder: relax.BlockBuilder, at: At) -> None:
        self._model, self._builder, self._at = model, builder, at
        self._constants = constants_of(model)
        self._prepared: dict[int, Subgraph] = {}
        self._depth, self._inlined, self._emitted = 0, 0, Emitted()

    def convert(self, params: dict[int, relax.Expr]) -> list[relax.Expr]:
        """Converts the model, whose inputs and states are `params`, by tensor. Returns the outputs and next states."""
        values = self._converted(self._model, params)
        computed = [self._result(self._model, index, values) for index in self._model.outputs]
        return [*computed, *(self._left(state, values) for state in self._model.states)]

    def _run(self, label: str, number: int, inputs: Sequence[relax.Expr]) -> list[relax.Expr]:
        """Converts the subgraph `number` for the operator `label`."""
        graph = self._prepare(number)
        self._inlined += len(graph.operators)
        if self._depth >= _MOST_DEPTH or self._inlined > _MOST_OPERATORS:
            what = f"runs subgraphs in more than {_MOST_DEPTH} levels"
            if self._depth < _MOST_DEPTH:
                what = f"runs subgraphs and loops of more than {_MOST_OPERATORS} operators in total"
            raise Unsupported(f"{label} {what}", op=label)
        if len(inputs) != len(graph.inputs):
            raise MalformedModel(
                f"{label} passes {len(inputs)} values to subgraph {number}, which has {len(graph.inputs)} inputs",
                op=label,
            )
        for index, value in zip(graph.inputs, inputs, strict=True):
            tensor, dtype = graph.tensors[index], str(value.ty.dtype)
            if dtype != tensor.dtype:
                message = f"{label} passes {dtype} to subgraph {number}, whose input {tensor.label} is {tensor.dtype}"
                raise MalformedModel(message, op=label, tensor=tensor.label)
        self._depth += 1
        values = self._converted(graph, dict(zip(graph.inputs, inputs, strict=True)))
        self._depth -= 1
        return [self._result(graph, index, values) for index in graph.outputs]

    def _prepare(self, number: int) -> Subgraph:
        if number not in self._prepared:
            graph = self._model.subgraphs[number]
            check_support(graph)
            for operator in graph.operators:
                for tensor in (graph.tensors[index] for index in operator.inputs if index >= 0):
                    if tensor.is_variable:
                        message = f"{operator.label} keeps the state {tensor.label} inside a subgraph"
                        raise Unsupported(message, op=operator.label, tensor=tensor.label)
            self._prepared[number] = replace_zero_scales(join_dilated(graph))
        return self._prepared[number]

    def _converted(self, graph: Subgraph, given: dict[int, relax.Expr]) -> dict[int, Value]:
        """Returns the value of each tensor that is given or computed."""
        values: dict[int, Value] = {**given}
        for operator in graph.operators:
            node = self._node(graph, operator, values)
            self._at(operator.label, node.output.label)
            results = self._move_parts(graph, operator, values) or self._convert_operator(graph, operator, node)
            node.require(len(results) == len(node.outputs), f"has {len(node.outputs)} outputs, not {len(results)}")
            for tensor, value in zip(node.outputs, results, strict=True):
                if isinstance(value, Complex):
                    node.require(tensor.dtype == "complex64", f"computes complex64, but its output is {tensor.dtype}")
                else:
                    node.expect(tensor, value)
                values[tensor.index] = value
        return values

    def _node(self, graph: Subgraph, operator: Operator, values: dict[int, Value]) -> Node:
        delegate = builtin_kernel, takes
        return Node(graph, operator, self._builder, values, self._constants, *delegate, self._run, self._emitted)

    def _convert_operator(self, graph: Subgraph, operator: Operator, node: Node) -> list[Value]:
        made = RULES[operator.name].converter(dtypes_of(graph, operator))(node)
        if isinstance(made, list):
            return [*made]
        return [made if isinstance(made, Complex) else node.clipped(made)]

    def _move_parts(self, graph: Subgraph, operator: Operator, values: dict[int, Value]) -> list[Value] | None:
        """Returns the result of an operator that moves complex values: it moves their real and imaginary parts. Returns
        None for other operators.
        """
        source = values.get(operator.inputs[0]) if operator.inputs else None
        if not isinstance(source, Complex) or operator.name not in COMPLEX_MOVES:
            return None
        parts = []
        for part in (source.real, source.imaginary):
            given = {**values, operator.inputs[0]: part}
            node = self._node(graph, operator, given)
            (moved,) = self._convert_operator(graph, operator, node)
            assert not isinstance(moved, Complex)
            parts.append(moved)
        return [Complex(*parts)]

    def _result(self, graph: Subgraph, index: int, values: dict[int, Value]) -> relax.Expr:
        """Returns the value of an output: an operator's result, an input or a constant."""
        tensor = graph.tensors[index]
        value = values[index] if tensor.data is None else constant_of(self._constants, graph, tensor, tensor.data)
        if isinstance(value, Complex):
            message = f"the output {tensor.label} is complex, which cannot be compiled"
            raise Unsupported(message, tensor=tensor.label, hint="end the model with its real and imaginary parts")
        return value

    def _left(self, state: State, values: dict[int, Value]) -> relax.Expr:
        """Returns the value that `state` has after a call."""
        tensor = self._model.tensors[state.result]
        if tensor.data is None and state.result not in values:
            raise MalformedModel(
                f"{tensor.label} is assigned to the variable {state.name}, but no operator computes it"
            )
        value = self._result(self._model, state.result, values)
        found, kept = (str(value.ty.dtype), shape_of(value)), (state.initial.dtype.name, state.initial.shape)
        if found != kept:
            name = state.name or tensor.label
            raise MalformedModel(f"the variable {name} is {kept}, but {found} is assigned to it", tensor=tensor.label)
        return value
