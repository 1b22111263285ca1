"""The branches of an `If`: subgraphs that see the tensors of the graph around them.

A branch that is taken becomes a part of that graph (`taken`), under names of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from service.compiler.importers.onnx.model import Branch, Tensor
from service.compiler.importers.onnx.order import in_order
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel

IF = "If"
THEN, ELSE = "then_branch", "else_branch"


def branch_of(operators: Iterable[Operator], constants: Mapping[str, Tensor], outputs: Iterable[str]) -> Branch:
    """A branch of the parts of a subgraph, sorted, with the names that it captures.

    Raises:
        MalformedModel: its operators depend on their own results.
    """
    ordered, ends = in_order(tuple(operators)), tuple(outputs)
    local = {*constants, *(name for operator in ordered for name in operator.outputs)}
    read = [*(name for operator in ordered for name in operator.inputs), *ends]
    captures = dict.fromkeys(name for name in read if name and name not in local)
    return Branch(ordered, constants, ends, tuple(captures))


def with_captures(operator: Operator) -> Operator:
    """An `If` whose inputs are its condition and everything that its branches read: so that a pass over the graph sees
    the readers of each tensor."""
    branches = [value for value in operator.attributes.values() if isinstance(value, Branch)]
    captures = dict.fromkeys(name for branch in branches for name in branch.captures)
    return replace(operator, inputs=(*operator.inputs[:1], *captures))


def taken(operator: Operator, condition: bool) -> tuple[list[Operator], dict[str, Tensor]]:
    """The operators and constants of the branch that an `If` takes, which compute the outputs of the `If`.

    Raises:
        MalformedModel: the `If` lacks the branch, or the branch has another number of outputs.
    """
    branch = operator.attributes.get(THEN if condition else ELSE)
    if not isinstance(branch, Branch) or len(branch.outputs) != len(operator.outputs):
        raise MalformedModel(f"{operator.label} has a branch of another number of outputs, or none", op=operator.label)
    prefix = f"{operator.outputs[0]}/{'then' if condition else 'else'}/"
    local = {*branch.constants, *(name for each in branch.operators for name in each.outputs if name)}
    names = {name: prefix + name for name in local}
    inside = [replace(each, index=operator.index) for each in _renamed(branch.operators, names)]
    constants = {
        names[name]: replace(tensor, name=names[name]) for name, tensor in branch.constants.items() if name in names
    }
    ends = [
        Operator(operator.index, "Identity", (names.get(inner, inner),), (outer,), {})
        for inner, outer in zip(branch.outputs, operator.outputs, strict=True)
        if outer
    ]
    return [*inside, *ends], constants


def _renamed(operators: Iterable[Operator], names: Mapping[str, str]) -> list[Operator]:
    """`operators` on tensors of other names, subgraphs included."""
    return [
        replace(
            operator,
            inputs=tuple(names.get(name, name) for name in operator.inputs),
            outputs=tuple(names.get(name, name) for name in operator.outputs),
            attributes={
                key: _branch_renamed(value, names) if isinstance(value, Branch) else value
                for key, value in operator.attributes.items()
            },
        )
        for operator in operators
    ]


def _branch_renamed(branch: Branch, names: Mapping[str, str]) -> Branch:
    """The branch with other names for its captures. Its own tensors keep theirs."""
    captured = {name: names[name] for name in branch.captures if name in names}
    return Branch(
        tuple(_renamed(branch.operators, captured)),
        branch.constants,
        tuple(captured.get(name, name) for name in branch.outputs),
        tuple(captured.get(name, name) for name in branch.captures),
    )
