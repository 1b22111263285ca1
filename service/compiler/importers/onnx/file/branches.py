"""The branches of an `If`: subgraphs that can also read the tensors of the enclosing graph.

If a condition is known, the operators of the chosen branch become part of that graph, under new names.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from service.compiler.importers.onnx.file.order import in_order
from service.compiler.importers.onnx.model import Branch, Tensor
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel

IF = "If"
THEN, ELSE = "then_branch", "else_branch"


def branch_of(operators: Iterable[Operator], constants: Mapping[str, Tensor], outputs: Iterable[str]) -> Branch:
    """Returns the branch that consists of the given parts of a subgraph. The branch's operators are sorted, and the
    branch lists the names that it captures.

    Raises:
        MalformedModel: the operators form a cycle.
    """
    ordered, ends = in_order(tuple(operators)), tuple(outputs)
    local = {*constants, *(name for operator in ordered for name in operator.outputs)}
    read = [*(name for operator in ordered for name in operator.inputs), *ends]
    captures = dict.fromkeys(name for name in read if name and name not in local)
    return Branch(ordered, constants, ends, tuple(captures))


def with_captures(operator: Operator) -> Operator:
    """Returns an `If` with additional inputs: everything that its branches read. A pass over the graph then finds all
    readers of each tensor.
    """
    branches = [value for value in operator.attributes.values() if isinstance(value, Branch)]
    captures = dict.fromkeys(name for branch in branches for name in branch.captures)
    return replace(operator, inputs=(*operator.inputs[:1], *captures))


def chosen_branch(operator: Operator, condition: bool) -> tuple[list[Operator], dict[str, Tensor]]:
    """Returns the operators and constants of the branch that an `If` takes. These operators compute the outputs of the
    `If`.

    Raises:
        MalformedModel: the `If` does not have this branch, or the branch has a different number of outputs.
    """
    branch = operator.attributes.get(THEN if condition else ELSE)
    if not isinstance(branch, Branch) or len(branch.outputs) != len(operator.outputs):
        raise MalformedModel(
            f"{operator.label} has no such branch, or one with another number of outputs", op=operator.label
        )
    prefix = f"{operator.outputs[0]}/{'then' if condition else 'else'}/"
    names = {name: prefix + name for name in _local(branch)}
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
    """Returns `operators` with tensors renamed, including those in subgraphs."""
    return [
        replace(
            operator,
            inputs=tuple(names.get(name, name) for name in operator.inputs),
            outputs=tuple(names.get(name, name) for name in operator.outputs),
            attributes={
                key: with_names(value, names) if isinstance(value, Branch) else value
                for key, value in operator.attributes.items()
            },
        )
        for operator in operators
    ]


def with_names(branch: Branch, names: Mapping[str, str]) -> Branch:
    """Returns the branch with its captures renamed. The branch's own tensors are renamed only if a capture gets the
    same name.
    """
    captured = {name: names[name] for name in branch.captures if name in names}
    local = _local(branch)
    used = {*local, *branch.captures, *captured.values()}
    changed = dict(captured)
    for name in local.intersection(captured.values()):
        changed[name] = _unused(name, used)
        used.add(changed[name])
    return Branch(
        tuple(_renamed(branch.operators, changed)),
        {
            changed.get(name, name): replace(each, name=changed.get(name, name))
            for name, each in branch.constants.items()
        },
        tuple(changed.get(name, name) for name in branch.outputs),
        tuple(captured.get(name, name) for name in branch.captures),
    )


def _local(branch: Branch) -> set[str]:
    """Returns the names of the branch's own tensors."""
    return {*branch.constants, *(name for operator in branch.operators for name in operator.outputs if name)}


def _unused(name: str, used: Container[str]) -> str:
    while name in used:
        name += "'"
    return name
