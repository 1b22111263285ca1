"""Unrolls the `Loop`s and `Scan`s of a model: a copy of the body for each iteration.

A `Loop` has a largest number of iterations and a condition; both may be computed from shapes. If one of them is
computed at run time, all iterations up to a constant bound are computed, and the results of those that the loop would
not run are not selected. A `Scan` has one iteration for each index of an axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.file.branches import BODY, LOOP, aliases, copied, own_inputs, subgraph_of
from service.compiler.importers.onnx.model import Branch, Tensor
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

NEXT = "octet.NextIteration"  # stands after the operators of an iteration, until these are converted
# Selects one of two groups of results. Stands after the operators that compute them, until these are converted.
SELECT = "octet.SelectBranch"
_LOOP_INPUTS = 2  # the inputs of a Loop's body before the carried values: the iteration and the condition
_MOST_OPERATORS = 20_000  # limit for a model, with all iterations counted
_UNBOUNDED = np.iinfo(np.int64).max

Known = Callable[[Operator, str], Array | None]  # the elements of a tensor, or None if it is computed at run time
Bound = Callable[[Operator, str], int | None]  # a constant bound of a number that is computed at run time, or None
ShapeOf = Callable[[Operator, str], tuple[int, ...]]


@dataclass
class Budget:
    """The number of operators that unrolled loops may still have."""

    left: int = _MOST_OPERATORS

    def take(self, operator: Operator, count: int) -> None:
        self.left -= max(1, count)
        self.check(operator, 0)

    def check(self, operator: Operator, count: int) -> None:
        """Raises an error unless `count` operators may be added."""
        if self.left < count:
            raise Unsupported(
                f"{operator.label} has more than {_MOST_OPERATORS} operators in all of its iterations",
                op=operator.label,
                hint="export the model with fewer iterations, or cut it before the loop",
            )


@dataclass
class Unrolling:
    """The state of a loop whose iterations are unrolled one by one.

    Attributes:
        operator: the Loop or Scan.
        count: the largest number of iterations.
        carried: the names of the values that the next iteration gets.
        condition: the name of the condition; "" if it is always true.
        trips: the name of the number of iterations, if it is computed at run time.
        active: the name of a tensor that is true if the last iteration was run; "" if it certainly was.
        scanned: the outputs of all iterations that become one output, for each such output.
    """

    operator: Operator
    body: Branch
    count: int
    carried: list[str]
    condition: str
    scanned: list[list[str]] = field(default_factory=list)
    iteration: int = 0
    trips: str = ""
    active: str = ""

    @property
    def prefix(self) -> str:
        return f"{next(filter(None, self.operator.outputs))}/"


def begin(operator: Operator, known: Known, shape_of: ShapeOf, bound: Bound) -> Unrolling:
    """Returns the state before the first iteration.

    Raises:
        MalformedModel: the operator and its body do not fit together.
        Unsupported: the number of iterations is computed at run time.
    """
    return _loop(operator, known, bound) if operator.op_type == LOOP else _scan(operator, shape_of)


def _loop(operator: Operator, known: Known, bound: Bound) -> Unrolling:
    inputs = own_inputs(operator)
    count, condition, *carried = [*inputs, "", ""][: max(_LOOP_INPUTS, len(inputs))]
    body = operator.attributes.get(BODY)
    outputs = len(body.outputs) if isinstance(body, Branch) else 0
    body = subgraph_of(operator, BODY, outputs)
    scans = outputs - 1 - len(carried)
    fits = len(body.inputs) == _LOOP_INPUTS + len(carried) and len(operator.outputs) == len(carried) + scans
    if scans < 0 or not fits or not all(carried):
        raise MalformedModel(f"{operator.label} and its body have different numbers of inputs", op=operator.label)
    scanned = [[] for _ in range(scans)]  # type: list[list[str]]
    limit = bound(operator, count) if count and known(operator, count) is None else None
    if limit is not None:
        return Unrolling(operator, body, limit, list(carried), condition, scanned, trips=count)
    most = _whole(operator, known, count) if count else _UNBOUNDED
    return Unrolling(operator, body, most, list(carried), condition, scanned)


def _whole(operator: Operator, known: Known, name: str) -> int:
    value = known(operator, name)
    if value is None:
        raise Unsupported(
            f"{operator.label} repeats as often as {shortened(name)} says, which is computed at run time",
            op=operator.label,
            tensor=shortened(name),
            hint="export the model with a fixed number of iterations, or limit the number by a constant (Min)",
        )
    if value.size != 1:
        raise MalformedModel(f"{operator.label} has a number of iterations of {value.size} elements", op=operator.label)
    return max(0, int(value.reshape(-1)[0]))


def _scan(operator: Operator, shape_of: ShapeOf) -> Unrolling:
    inputs, number = own_inputs(operator), operator.attributes.get("num_scan_inputs")
    if not isinstance(number, int) or not 0 < number <= len(inputs) or not all(inputs):
        raise MalformedModel(f"{operator.label} has no valid number of scanned inputs", op=operator.label)
    states = len(inputs) - number
    body = subgraph_of(operator, BODY, len(operator.outputs))
    if len(body.inputs) != len(inputs) or len(body.outputs) < states:
        raise MalformedModel(f"{operator.label} and its body have different numbers of inputs", op=operator.label)
    shapes = [shape_of(operator, name) for name in inputs[states:]]
    axes = _numbers(operator, "scan_input_axes", number)
    if any(not -len(shape) <= axis < len(shape) for shape, axis in zip(shapes, axes, strict=True)):
        raise MalformedModel(f"{operator.label} scans an axis that its input does not have", op=operator.label)
    lengths = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
    if len(lengths) != 1:
        raise MalformedModel(f"{operator.label} scans inputs of different lengths", op=operator.label)
    scans = [[] for _ in range(len(body.outputs) - states)]  # type: list[list[str]]
    return Unrolling(operator, body, lengths.pop(), list(inputs[:states]), "", scans)


def _numbers(operator: Operator, name: str, count: int) -> tuple[int, ...]:
    values = operator.attributes.get(name, (0,) * count)
    if not isinstance(values, tuple) or len(values) != count or not all(isinstance(each, int) for each in values):
        raise MalformedModel(f"{operator.label} has an attribute {name} without {count} numbers", op=operator.label)
    return values


def continued(state: Unrolling, known: Known, budget: Budget) -> tuple[list[Operator], Mapping[str, Tensor]]:
    """Returns the operators and constants of the next iteration, with a `NEXT` at the end, or those that compute the
    outputs after the last iteration.

    Raises:
        Unsupported: the condition is computed at run time, or there are too many iterations.
    """
    if state.iteration >= state.count:
        return _end(state)
    holds = _holds(state, known)
    if holds is False:
        return _end(state)
    budget.take(state.operator, len(state.body.operators))
    if holds is None or state.trips or state.active:
        rest = state.count - state.iteration - 1
        budget.check(state.operator, rest * max(1, len(state.body.operators)))  # all iterations are computed
        return _selected_iteration(state, is_computed=holds is None)
    if state.operator.op_type == LOOP:
        return _loop_iteration(state)
    return _scan_iteration(state)


def _holds(state: Unrolling, known: Known) -> bool | None:
    """Returns the condition of the next iteration, or None if it is computed at run time."""
    if not state.condition:
        return True
    value = known(state.operator, state.condition)
    if value is None and state.count < _UNBOUNDED:
        return None
    if value is None:
        raise Unsupported(
            f"{state.operator.label} repeats while {shortened(state.condition)} is true, which is computed at run time",
            op=state.operator.label,
            tensor=shortened(state.condition),
            hint="export the model with a fixed number of iterations",
        )
    return bool(value.reshape(-1)[:1].all())


def _loop_iteration(state: Unrolling) -> tuple[list[Operator], Mapping[str, Tensor]]:
    number, condition = (f"{state.prefix}{state.iteration}/{what}" for what in ("iteration", "condition"))
    added = {
        number: Tensor(number, "int64", (), np.array(state.iteration)),
        condition: Tensor(condition, "bool", (), np.array(True)),
    }
    copy = copied(
        state.body,
        state.operator.index,
        f"{state.prefix}{state.iteration}/",
        state.prefix,
        (number, condition, *state.carried),
    )
    state.condition, *rest = copy.outputs
    return _next(state, copy.operators, rest), {**copy.constants, **added}


def _selected_iteration(state: Unrolling, *, is_computed: bool) -> tuple[list[Operator], Mapping[str, Tensor]]:
    """Returns an iteration whose results are selected only if the loop runs it.

    Args:
        is_computed: true if the condition of this iteration is computed at run time.
    """
    operator, prefix = state.operator, f"{state.prefix}{state.iteration}/"
    if any(state.operator.outputs[len(state.carried) :]):
        raise Unsupported(
            f"{operator.label} collects the results of a number of iterations that is computed at run time",
            op=operator.label,
            hint="export the model with a fixed number of iterations",
        )
    limits, parts, condition = list[Operator](), [state.active], state.condition
    if is_computed:
        parts.append(condition)
    number = f"{prefix}iteration"
    if state.trips:
        limits.append(Operator(operator.index, "Less", (number, state.trips), (f"{prefix}within",), {}))
        parts.append(f"{prefix}within")
    active, *rest = [part for part in parts if part]
    for index, part in enumerate(rest):
        both = f"{prefix}active{index}"
        limits.append(Operator(operator.index, "And", (active, part), (both,), {}))
        active = both
    earlier = tuple(state.carried)
    operators, constants = _loop_iteration(state)
    *inside, following = operators
    selected = tuple(f"{prefix}carried{index}" for index in range(len(earlier)))
    if selected:
        inputs = (active, *state.carried, *earlier)
        inside.append(Operator(operator.index, SELECT, inputs, selected, {}, written=LOOP))
    state.active, state.carried = active, list(selected)
    return [*limits, *inside, following], constants


def _scan_iteration(state: Unrolling) -> tuple[list[Operator], Mapping[str, Tensor]]:
    operator, states = state.operator, len(state.carried)
    sources = own_inputs(operator)[states:]
    axes, directions = (_numbers(operator, name, len(sources)) for name in ("scan_input_axes", "scan_input_directions"))
    prefix = f"{state.prefix}{state.iteration}/"
    gathers, added, slices = list[Operator](), dict[str, Tensor](), list[str]()
    for number, (source, axis, reversed_) in enumerate(zip(sources, axes, directions, strict=True)):
        at = state.count - 1 - state.iteration if reversed_ else state.iteration
        position, output = f"{prefix}position{number}", f"{prefix}slice{number}"
        added[position] = Tensor(position, "int64", (), np.array(at))
        gathers.append(Operator(operator.index, "Gather", (source, position), (output,), {"axis": axis}))
        slices.append(output)
    copy = copied(state.body, operator.index, prefix, state.prefix, (*state.carried, *slices))
    return _next(state, [*gathers, *copy.operators], copy.outputs), {**copy.constants, **added}


def _next(state: Unrolling, operators: list[Operator], outputs: Sequence[str]) -> list[Operator]:
    states = len(state.carried)
    state.carried = list(outputs[:states])
    for parts, name in zip(state.scanned, outputs[states:], strict=True):
        parts.append(name)
    state.iteration += 1
    return [*operators, replace(state.operator, op_type=NEXT, attributes={"state": state})]


def _end(state: Unrolling) -> tuple[list[Operator], Mapping[str, Tensor]]:
    """Returns the operators that compute the outputs of the Loop or Scan. An output without elements becomes a constant
    that no operator can use.
    """
    empty: dict[str, Tensor] = {}
    operator, states = state.operator, len(state.carried)
    ends = aliases(replace(operator, outputs=operator.outputs[:states]), state.carried)
    is_scan = operator.op_type != LOOP
    axes, directions = (
        _numbers(operator, name, len(state.scanned)) if is_scan else (0,) * len(state.scanned)
        for name in ("scan_output_axes", "scan_output_directions")
    )
    for output, parts, axis, reversed_ in zip(operator.outputs[states:], state.scanned, axes, directions, strict=True):
        if not output:
            continue
        if not parts:
            oddity = f"is empty, because {operator.label} has no iteration"
            empty[output] = Tensor(output, "unknown", (0,), oddity=oddity)
            continue
        rows = [f"{output}/row{number}" for number in range(len(parts))]
        ends += [
            Operator(operator.index, "Unsqueeze", (part,), (row,), {"axes": (axis,)})
            for part, row in zip(parts[::-1] if reversed_ else parts, rows, strict=True)
        ]
        ends.append(Operator(operator.index, "Concat", tuple(rows), (output,), {"axis": axis}))
    return ends, empty
