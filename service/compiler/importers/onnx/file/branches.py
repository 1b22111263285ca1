"""Subgraphs: the branches of an `If` and the bodies of `Loop` and `Scan`, which can also read the tensors of the
enclosing graph.

The operators of a subgraph become part of that graph under new names (`copied`): those of the branch that an `If`
takes, and those of a body once for each iteration.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from service.compiler.importers.onnx.file.order import in_order
from service.compiler.importers.onnx.model import Branch, Tensor
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel

IF, LOOP, SCAN = "If", "Loop", "Scan"
WITH_SUBGRAPHS = (IF, LOOP, SCAN)
THEN, ELSE, BODY = "then_branch", "else_branch", "body"


def branch_of(
    operators: Iterable[Operator],
    constants: Mapping[str, Tensor],
    outputs: Iterable[str],
    inputs: Iterable[str] = (),
) -> Branch:
    """Returns the branch that consists of the given parts of a subgraph. The branch's operators are sorted, and the
    branch lists the names that it captures.

    Raises:
        MalformedModel: the operators form a cycle.
    """
    ordered, ends, given = in_order(tuple(operators)), tuple(outputs), tuple(inputs)
    local = {*constants, *given, *(name for operator in ordered for name in operator.outputs)}
    read = [*(name for operator in ordered for name in operator.inputs), *ends]
    captures = dict.fromkeys(name for name in read if name and name not in local)
    return Branch(ordered, constants, ends, tuple(captures), given)


def with_captures(operator: Operator) -> Operator:
    """Returns an operator with additional inputs: everything that its subgraphs read. A pass over the graph then finds
    all readers of each tensor.
    """
    branches = [value for value in operator.attributes.values() if isinstance(value, Branch)]
    captures = dict.fromkeys(name for branch in branches for name in branch.captures)
    return replace(operator, inputs=(*own_inputs(operator), *captures))


def own_inputs(operator: Operator) -> tuple[str, ...]:
    """Returns the inputs of an operator without those that only its subgraphs read."""
    body = operator.attributes.get(BODY)
    return operator.inputs[: len(body.inputs) if isinstance(body, Branch) else 1]


def subgraph_of(operator: Operator, key: str, outputs: int) -> Branch:
    """Returns the subgraph in the attribute `key`.

    Raises:
        MalformedModel: the operator does not have this subgraph, or the subgraph has another number of outputs than
            `outputs`.
    """
    branch = operator.attributes.get(key)
    if not isinstance(branch, Branch) or len(branch.outputs) != outputs:
        raise MalformedModel(f"{operator.label} has no {key} with {outputs} outputs", op=operator.label)
    return branch


@dataclass(frozen=True)
class Copied:
    """The operators of a subgraph under new names, its constants, and the new names of its outputs."""

    operators: list[Operator]
    constants: dict[str, Tensor]
    outputs: tuple[str, ...]


def copied(branch: Branch, index: int, prefix: str, shared: str, given: Iterable[str] = ()) -> Copied:
    """Returns a copy of a subgraph for the enclosing graph.

    Args:
        index: the index of the copied operators in error messages.
        prefix: the prefix of the new names.
        shared: the prefix of the names of constants, which all copies of one body share.
        given: the names in the enclosing graph of the tensors that are passed to the subgraph.
    """
    names = {name: prefix + name for operator in branch.operators for name in operator.outputs if name}
    names |= {name: shared + name for name in branch.constants}
    names |= zip(branch.inputs, given, strict=True)
    inside = [replace(each, index=index) for each in renamed(branch.operators, names)]
    constants = {names[name]: replace(tensor, name=names[name]) for name, tensor in branch.constants.items()}
    return Copied(inside, constants, tuple(names.get(name, name) for name in branch.outputs))


def aliases(operator: Operator, sources: Iterable[str]) -> list[Operator]:
    """Returns operators that compute the outputs of `operator` as copies of `sources`."""
    pairs = zip(sources, operator.outputs, strict=True)
    return [Operator(operator.index, "Identity", (source,), (output,), {}) for source, output in pairs if output]


def renamed(operators: Iterable[Operator], names: Mapping[str, str]) -> list[Operator]:
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
        tuple(renamed(branch.operators, changed)),
        {
            changed.get(name, name): replace(each, name=changed.get(name, name))
            for name, each in branch.constants.items()
        },
        tuple(changed.get(name, name) for name in branch.outputs),
        tuple(captured.get(name, name) for name in branch.captures),
        tuple(changed.get(name, name) for name in branch.inputs),
    )


def _local(branch: Branch) -> set[str]:
    """Returns the names of the branch's own tensors."""
    return {
        *branch.constants,
        *branch.inputs,
        *(name for operator in branch.operators for name in operator.outputs if name),
    }


def _unused(name: str, used: Container[str]) -> str:
    while name in used:
        name += "'"
    return name
