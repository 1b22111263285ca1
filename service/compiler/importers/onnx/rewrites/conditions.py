"""Replaces the subgraphs of a model by operators: the branches of `If`, and the bodies of `Loop` and `Scan` (`loops`).

Exported models contain conditions that are constant, and conditions that are computed from the input's shape. ONNX
Runtime folds the former when it loads a model, and evaluates the latter in each call. If a condition depends on the
values of an input, both branches are computed, and the results of one are selected. This gives the same values, because
operators have no other effects.

Conditions depend on shapes, and shapes depend on the operators before them. So this module converts the operators one
after another, as the importer does, but keeps only what was taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from tvm import relax

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.converting import converted
from service.compiler.importers.onnx.file.branches import (
    ELSE,
    IF,
    THEN,
    WITH_SUBGRAPHS,
    aliases,
    copied,
    subgraph_of,
)
from service.compiler.importers.onnx.file.graph import check_graph
from service.compiler.importers.onnx.file.order import in_order
from service.compiler.importers.onnx.model import Model, Tensor
from service.compiler.importers.onnx.node import Node, State, Value
from service.compiler.importers.onnx.rewrites import loops
from service.compiler.importers.onnx.rewrites.loops import Budget
from service.compiler.importers.onnx.support import check_operator
from service.compiler.importers.qdq import Operator
from service.compiler.qnn.graph import shape_of
from service.core.errors import MalformedModel, OctetError, Unsupported
from service.core.models.arrays import Array

# Operators that do not change the largest element of their first input.
_KEEP_BOUNDS = frozenset({"Cast", "Flatten", "Identity", "ReduceMax", "ReduceMin", "Reshape", "Squeeze", "Unsqueeze"})
_MAX_OF_CLIP = 2


def resolved(model: Model, params: Sequence[relax.Var]) -> Model:
    """Returns `model` with every `If`, `Loop` and `Scan` replaced by operators.

    Requires: a graph that `graph.check_graph` accepts. `params` are the graph's inputs.
    Ensures: a graph without subgraphs that `check_graph` would accept.

    Raises:
        MalformedModel: an operator does not fit its subgraphs.
        Unsupported: the number of iterations of a loop is computed at run time, the branches of an `If` that depends on
            an input's values have results of different shapes, or an operator cannot be compiled.
    """
    if not any(operator.op_type in WITH_SUBGRAPHS for operator in model.operators):
        return model
    builder = relax.BlockBuilder()
    values: dict[str, Value] = {end.name: param for end, param in zip(model.inputs, params, strict=True)}
    values |= {name: tensor.data for name, tensor in model.constants.items() if tensor.data is not None}
    resolving = _Resolving(State(model, builder, values))
    with builder.function("main", list(params)):
        with builder.dataflow():
            operators = resolving.run()
            end = builder.emit_output(relax.const(np.zeros((), np.int32)))
        builder.emit_func_output(end)
    result = replace(resolving.state.model, operators=in_order(operators))
    check_graph(result)
    return result


class _Resolving:
    """The state of the replacement.

    Attributes:
        failures: tensor that could not be computed -> the error.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.failures: dict[str, OctetError] = {}
        self._budget = Budget()
        self._producers: dict[str, Operator] = {}

    def run(self) -> list[Operator]:
        """Returns the operators of the model without subgraphs. The constants of subgraphs are added to its
        constants.
        """
        waiting, passed = deque(self.state.model.operators), list[Operator]()
        left = sum(map(_is_replaced, waiting))
        while left:
            operator = waiting.popleft()
            if not _is_replaced(operator):
                passed.append(operator)
                self._producers |= dict.fromkeys(filter(None, operator.outputs), operator)
                convert_if_possible(self.state, operator, self.failures)
                continue
            inside, constants = self._replacement(operator)
            left += sum(map(_is_replaced, inside)) - 1
            waiting.extendleft(reversed(inside))
            self._add(constants)
        return [*passed, *waiting]

    def _add(self, constants: Mapping[str, Tensor]) -> None:
        new = {name: tensor for name, tensor in constants.items() if name not in self._constants}
        self._constants |= new
        self.state.values |= {name: tensor.data for name, tensor in new.items() if tensor.data is not None}

    @cached_property
    def _constants(self) -> dict[str, Tensor]:
        constants = dict(self.state.model.constants)
        self.state.model = replace(self.state.model, constants=constants)
        return constants

    def _replacement(self, operator: Operator) -> tuple[list[Operator], Mapping[str, Tensor]]:
        match operator.op_type:
            case _ if operator.op_type == IF:
                return self._branch(operator)
            case loops.NEXT:
                return loops.continued(operator.attributes["state"], self._elements, self._budget)
            case _ if operator.op_type == loops.SELECT:
                return self._selected(operator), {}
        begun = loops.begin(operator, self._elements, self._shape, self._bound)
        return loops.continued(begun, self._elements, self._budget)

    def _branch(self, operator: Operator) -> tuple[list[Operator], Mapping[str, Tensor]]:
        condition = self._elements(operator, operator.inputs[0] if operator.inputs else "")
        keys = (THEN, ELSE) if condition is None else (THEN if _truth(operator, condition) else ELSE,)
        prefix = next(filter(None, operator.outputs))
        copies = []
        for key in keys:
            branch = subgraph_of(operator, key, len(operator.outputs))
            start = f"{prefix}/{key.removesuffix('_branch')}/"
            copies.append(copied(branch, operator.index, start, start))
        constants = {name: tensor for copy in copies for name, tensor in copy.constants.items()}
        inside = [each for copy in copies for each in copy.operators]
        if len(copies) == 1:
            return [*inside, *aliases(operator, copies[0].outputs)], constants
        self._budget.take(operator, len(inside))
        inputs = (operator.inputs[0], *copies[0].outputs, *copies[1].outputs)
        return [*inside, replace(operator, op_type=loops.SELECT, inputs=inputs, attributes={})], constants

    def _selected(self, operator: Operator) -> list[Operator]:
        """Returns operators that select the results of one of two branches."""
        name, *results = operator.inputs
        condition = f"{next(filter(None, operator.outputs))}/condition"
        target = f"{condition}/shape"
        self._add({target: Tensor(target, "int64", (0,), np.zeros(0, np.int64))})
        operators = [Operator(operator.index, "Reshape", (name, target), (condition,), {}, written=IF)]
        count = len(operator.outputs)
        for output, then, otherwise in zip(operator.outputs, results[:count], results[count:], strict=True):
            if not output:
                continue
            described = [(self._dtype(operator, each), list(self._shape(operator, each))) for each in (then, otherwise)]
            if described[0] != described[1]:
                shown = " and ".join(f"{dtype} {shape}" for dtype, shape in described)
                raise Unsupported(
                    f"{operator.label} chooses between results of {shown} by {shortened(name)}, which is computed at "
                    "run time",
                    op=operator.label,
                    tensor=shortened(output),
                    hint="export the model with the branch that you need",
                )
            operators.append(Operator(operator.index, "Where", (condition, then, otherwise), (output,), {}, written=IF))
        return operators

    def _bound(self, operator: Operator, name: str) -> int | None:
        """Returns a constant that a whole number does not exceed, found in the operators that compute the number."""
        value = self._elements(operator, name)
        if value is not None:
            return int(value.max()) if value.size == 1 and value.dtype.kind in "iu" else None
        producer = self._producers.get(name)
        if producer is None:
            return None
        if producer.op_type in _KEEP_BOUNDS:
            return self._bound(operator, producer.inputs[0])
        limits: list[int | None] = []
        if producer.op_type == "Min":
            limits = [self._bound(operator, each) for each in producer.inputs]
        elif producer.op_type == "Clip" and len(producer.inputs) > _MAX_OF_CLIP and producer.inputs[_MAX_OF_CLIP]:
            limits = [self._bound(operator, producer.inputs[_MAX_OF_CLIP])]
        return min((max(0, limit) for limit in limits if limit is not None), default=None)

    def _value(self, operator: Operator, name: str) -> Value:
        if name in self.failures:
            raise self.failures[name]
        return Node(self.state, replace(operator, inputs=(name,))).value(0)

    def _elements(self, operator: Operator, name: str) -> Array | None:
        self._value(operator, name)
        return Node(self.state, replace(operator, inputs=(name,))).constant_data(0)

    def _shape(self, operator: Operator, name: str) -> tuple[int, ...]:
        value = self._value(operator, name)
        return value.shape if isinstance(value, np.ndarray) else shape_of(value)

    def _dtype(self, operator: Operator, name: str) -> str:
        self._value(operator, name)
        return Node(self.state, replace(operator, inputs=(name,))).dtype(0)


def _is_replaced(operator: Operator) -> bool:
    return operator.op_type in (*WITH_SUBGRAPHS, loops.NEXT, loops.SELECT)


def _truth(operator: Operator, condition: Array) -> bool:
    if condition.size != 1:
        raise MalformedModel(
            f"{operator.label} has a condition of {condition.size} elements, not one", op=operator.label
        )
    return bool(condition.reshape(-1)[0])


def convert_if_possible(state: State, operator: Operator, failures: dict[str, OctetError]) -> None:
    """Converts an operator. If that fails, the error is raised only if a condition depends on the operator, because a
    later pass (`qdq`) may replace the operator.
    """
    failed = next((failures[name] for name in operator.inputs if name in failures), None)
    if failed is None:
        try:
            check_operator(state.model, operator)
            state.values |= converted(state, operator)
            return
        except OctetError as error:
            failed = error
    failures |= dict.fromkeys(filter(None, operator.outputs), failed)
