"""Imports an ExecuTorch program as a QNN module."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder.module import At, build_main, import_stage, param
from service.compiler.importers.detect import EXECUTORCH
from service.compiler.importers.executorch.file.delegate import read_graph
from service.compiler.importers.executorch.file.reader import read_plan
from service.compiler.importers.executorch.graph import Graph as DelegateGraph
from service.compiler.importers.executorch.kernels import called, constant
from service.compiler.importers.executorch.node import Node, State, activation_type
from service.compiler.importers.executorch.operators import RULES
from service.compiler.importers.executorch.program import Delegated, Jump, Kernel, Move, Plan, Tensor
from service.compiler.importers.executorch.values import Dynamic, Stored
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.names import join_names
from service.compiler.importers.onnx.standard import Standard
from service.compiler.importers.torch import tensors as torch
from service.compiler.importers.torch.graph import Graph
from service.compiler.importers.torch.importer import computed, outputs_of
from service.compiler.importers.torch.signature import output_specs, spec_of
from service.compiler.importers.torch.tensors import Spec
from service.compiler.importers.torch.values import Value
from service.compiler.qnn.graph import emit, shape_of
from service.core.errors import MalformedModel, Unsupported
from service.core.models.signature import ModelSignature, TensorSpec

_XNNPACK = "XnnpackBackend"
_ANOTHER_BACKEND = "export the model for XNNPACK, or save it before it is lowered: torch.export.save(program, file)"


def import_model(data: bytes, at: At = lambda op, tensor: None) -> ImportedModel:
    """Imports a program. An input whose size is only an upper bound gets this size.

    Args:
        data: the file. Constants are copied into the module.
        at: called with every kernel and every node of a delegate, and the name of its output, before it is converted.

    Raises:
        MalformedModel: the file is not well formed, or the definition of an operator is invalid.
        Unsupported, UnsupportedOperator: the program is well formed, but a part of it cannot be compiled.
    """
    with import_stage():
        return _Import(read_plan(data), at, len(data)).run()


class _Import:
    def __init__(self, plan: Plan, at: At, size_bytes: int) -> None:
        self._plan, self._at = plan, at
        self._builder = relax.BlockBuilder()
        self._graph, self._standard = Graph(self._builder, at), Standard(self._builder, size_bytes)
        self._values: dict[int, Any] = {}
        self._read: dict[int, DelegateGraph] = {}

    def run(self) -> ImportedModel:
        plan = self._plan
        if not plan.inputs:
            raise Unsupported("the program has no inputs")
        specs = self._input_specs()
        params = [param(f"input_{index}", spec.shape, spec.dtype.name) for index, spec in enumerate(specs)]
        self._values |= {index: Value(each) for index, each in zip(plan.inputs, params, strict=True)}
        results: list[tuple[str | None, Value]] = []

        def convert() -> Iterator[relax.Expr]:
            for number, instruction in enumerate(plan.instructions):
                self._convert(instruction, number)
            self._graph.check()
            results.extend(outputs_of([self._output(index) for index in plan.outputs]))
            return (computed(self._builder, value, params) for _, value in results)

        build_main(self._builder, params, convert)
        notices: tuple[str, ...] = ()
        if plan.other_methods:
            notices = (f"only the method {plan.name} is compiled, not {join_names(plan.other_methods)}",)
        signature = ModelSignature(specs, output_specs(results))
        return ImportedModel(self._builder.get(), signature, EXECUTORCH, notices=notices)

    def _input_specs(self) -> tuple[TensorSpec, ...]:
        return tuple(self._input_spec(f"input_{number}", index) for number, index in enumerate(self._plan.inputs))

    def _input_spec(self, name: str, index: int) -> TensorSpec:
        tensor = self._plan.values[index]
        if not isinstance(tensor, Tensor):
            raise Unsupported(f"{name} is not a tensor, which cannot be compiled")
        if tensor.dtype is None:
            raise Unsupported(f"{name} has a type that cannot be compiled")
        return spec_of(name, Spec(tensor.dtype, tensor.shape))

    def _output(self, index: int) -> Any:
        found = self._values.get(index)
        if found is None and isinstance(tensor := self._plan.values[index], Tensor) and tensor.data is not None:
            found = constant(tensor)
        if isinstance(found, torch.Tensor):
            raise Unsupported("an output of the program is a constant, which cannot be compiled")
        if found is None:
            raise MalformedModel("an output of the program is never computed")
        return found

    def _convert(self, instruction: Any, number: int) -> None:
        match instruction:
            case Kernel():
                called(self._graph, self._plan, instruction, self._values)
            case Delegated():
                self._delegate(instruction, number)
            case Move(source, target):
                self._values[target] = self._values.get(source, self._plan.values[source])
            case Jump():
                raise Unsupported(
                    f"instruction #{number} is a branch, which cannot be compiled", hint="export the model without it"
                )

    # -- delegates

    def _delegate(self, call: Delegated, number: int) -> None:
        delegate = self._plan.delegates[call.delegate]
        if delegate.name != _XNNPACK:
            raise Unsupported(
                f"the program calls the delegate {delegate.name}; only XNNPACK's can be compiled", hint=_ANOTHER_BACKEND
            )
        if call.delegate not in self._read:
            self._read[call.delegate] = read_graph(delegate.data, self._plan.named)
        graph = self._read[call.delegate]
        state = State(self._builder, self._standard, graph.tensors)
        for name in graph.inputs:
            state.values[name] = self._external(graph, name, call)
        for operator in graph.operators:
            self._at(operator.label, f"delegate_{number}")
            rule = RULES.get(operator.name)
            if rule is None:
                raise Unsupported(f"{operator.label} cannot be compiled", op=operator.label, hint=_ANOTHER_BACKEND)
            node = Node(state, operator, number)
            state.values[node.output.number] = rule(node)
        for name in graph.outputs:
            index = self._argument(graph, name, call)
            self._values[index] = self._result(state, name, self._plan.values[index])

    def _argument(self, graph: DelegateGraph, name: int, call: Delegated) -> int:
        external = graph.tensors[name].external
        assert external is not None  # `read_graph` checks this
        if external >= len(call.arguments):
            raise MalformedModel(f"the delegate's graph has external {external}, but {len(call.arguments)} arguments")
        return call.arguments[external]

    def _external(self, graph: DelegateGraph, name: int, call: Delegated) -> Any:
        """Returns an argument of the delegate as a value of its graph."""
        index, tensor = self._argument(graph, name, call), graph.tensors[name]
        own = self._plan.values[index]
        found = self._values.get(index)
        if found is None and isinstance(own, Tensor) and own.data is not None:
            found = constant(own)
        if found is None:
            raise MalformedModel(f"the delegate reads tensor {index} before it is computed")
        self._graph.check()  # a kernel that cannot be compiled has an unknown result
        shape = found.data.shape if isinstance(found, torch.Tensor) else found.shape
        if shape != tensor.shape and (shape, tensor.shape) != ((), (1,)):  # a scalar has one dimension there
            raise MalformedModel(f"the delegate's graph expects the shape {list(tensor.shape)}, not {list(shape)}")
        if isinstance(found, torch.Tensor):
            array = np.ascontiguousarray(found.data).reshape(tensor.shape)
            return Stored(relax.const(array), activation_type(tensor)) if tensor.scales is not None else array
        if found.dtype in ("int8", "uint8"):
            return Stored(found.expr, activation_type(tensor))
        if found.dtype != "float32":
            raise Unsupported(f"the delegate reads {found.dtype}, which cannot be compiled")
        return found.expr

    def _result(self, state: State, name: int, tensor: Any) -> Any:
        """Returns an output of the delegate as a value of the program, in which it is `tensor`."""
        made = state.values.get(name)
        if made is None:
            raise MalformedModel(f"no node of the delegate's graph computes its output {name}")
        if isinstance(made, Dynamic):
            raise Unsupported("the delegate returns dynamically quantized values, which cannot be compiled")
        if isinstance(made, np.ndarray):
            return torch.Tensor(made)
        expr, type_ = (made.expr, made.type) if isinstance(made, Stored) else (made, None)
        shape = shape_of(expr)
        if not isinstance(tensor, Tensor) or math.prod(tensor.shape) != math.prod(shape):
            raise MalformedModel(f"the delegate computes an output of shape {list(shape)}, which the program does not")
        if tensor.shape != shape:
            expr = emit(self._builder, relax.op.reshape(expr, tensor.shape), "result")
        return Value(expr, type_)
