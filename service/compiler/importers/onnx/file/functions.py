"""Replaces calls of a model's own functions by the functions' nodes.

A `FunctionProto` (onnx/docs/IR.md, "Functions") is a list of nodes with named inputs, outputs and attributes. The names
of its tensors are local, so each call gets new names. An attribute of a node may refer to an attribute of the call
(`ref_attr_name`). If a function and an operator have the same name, ONNX Runtime uses the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.file.message import Values
from service.compiler.importers.onnx.file.tensors import text
from service.core.errors import MalformedModel, Unsupported

ONNX_DOMAINS = ("", "ai.onnx")
_MOST_NODES = 50_000  # the limit after inlining, because functions that call each other may grow without bound
_DEEPEST = 64
_SEPARATOR = "/"
SCOPE = "scope"

Key = tuple[str, str, str]  # domain, name, overload


@dataclass(frozen=True)
class Scope:
    """The names and attributes of one call of a function. A subgraph in the function is read later. Until then, the
    `Scope` is stored next to the subgraph's bytes, under the key `SCOPE`.

    Attributes:
        names: the function's tensor names -> the names in the graph of the call.
        prefix: the prefix that all other tensors of the function get.
        given: the call's attributes by name.
        is_nested: true if the subgraph is inside another subgraph. The enclosing subgraph then renames the tensors of
            both.
    """

    names: dict[str, str]
    prefix: str
    given: Mapping[str, Values]
    is_nested: bool = False

    def renamed(self, name: str) -> str:
        """Returns the name that a tensor has in the graph of the call. Returns "" for ""."""
        return name and self.names.setdefault(name, self.prefix + name)

    def bound(self, node: Values) -> Values:
        """Returns the node with each reference to an attribute of the call replaced by that attribute."""
        attributes = list(_bound(node.get("attribute", ()), self.given))
        return {**node, "attribute": [{**each, SCOPE: self} if "g" in each else each for each in attributes]}


class Functions:
    """The functions of a model.

    Args:
        message: the model.
        opset: the version of ONNX's own operators in the model's graph.
    """

    def __init__(self, message: Values, opset: int) -> None:
        self._functions: dict[Key, Values] = {_key(each, "name"): each for each in message.get("functions", ())}
        self._opset = opset
        self._left = _MOST_NODES
        self._calls = 0

    def inlined(self, nodes: Sequence[Values]) -> list[Values]:
        """Returns `nodes` with all calls of functions inlined. If several functions have the same name, the last
        function is used.

        Raises:
            Unsupported: functions call each other without end, there are too many nodes, or a function uses another
                operator set than the model.
            MalformedModel: a call does not fit its function.
        """
        return list(nodes) if not self._functions else list(self._expanded(nodes, 0))

    def _expanded(self, nodes: Sequence[Values], depth: int) -> Iterator[Values]:
        for node in nodes:
            self._left -= 1  # calls count too, because functions without nodes may call each other without end
            if self._left < 0:
                raise Unsupported(f"the model has more than {_MOST_NODES} nodes once its functions are inlined")
            function = self._functions.get(_key(node, "op_type"))
            if function is None:
                yield node
                continue
            label = shortened(text(node.get("op_type")))
            if depth >= _DEEPEST:
                raise Unsupported(f"the model's function {label} calls itself, or more than {_DEEPEST} others in turn")
            self._check_opset(function, label)
            yield from self._expanded(self._body(node, function, label), depth + 1)

    def _check_opset(self, function: Values, label: str) -> None:
        versions = [
            int(each.get("version", 0))
            for each in function.get("opset_import", ())
            if text(each.get("domain")) in ONNX_DOMAINS
        ]
        if versions and versions[-1] != self._opset:
            raise Unsupported(
                f"the model's function {label} uses operator set {versions[-1]}, but the model uses {self._opset}",
                hint="inline its functions (onnx.inliner), or export it again",
            )

    def _body(self, call: Values, function: Values, label: str) -> list[Values]:
        """Returns the function's nodes with the tensors and attributes of the call."""
        self._calls += 1
        inputs = _paired(call.get("input", ()), function.get("input", ()), label, "inputs")
        outputs = _paired(call.get("output", ()), function.get("output", ()), label, "outputs")
        given = {text(each.get("name")): each for each in function.get("attribute_proto", ())}
        given |= {text(each.get("name")): each for each in call.get("attribute", ())}
        prefix = f"{label}{_SEPARATOR}{self._calls}{_SEPARATOR}"
        scope = Scope({**outputs, **inputs}, prefix, given)
        passed = [(inputs[name], own) for name, own in outputs.items() if name in inputs]
        return [
            *(_local(node, scope) for node in function.get("node", ())),
            *({"op_type": b"Identity", "input": [_raw(name)], "output": [_raw(own)]} for name, own in passed),
        ]


def _local(node: Values, scope: Scope) -> Values:
    """Returns a node of a function, with the names that its tensors have in the calling graph."""
    result: dict[str, Any] = dict(scope.bound(node))
    for ends in ("input", "output"):
        result[ends] = [_raw(scope.renamed(text(raw))) for raw in node.get(ends, ())]
    return result


def _key(values: Values, name: str) -> Key:
    domain = text(values.get("domain"))
    return ("" if domain in ONNX_DOMAINS else domain, text(values.get(name)), text(values.get("overload")))


def _paired(given: Sequence[memoryview], names: Sequence[memoryview], label: str, what: str) -> dict[str, str]:
    """Maps the names of the function's tensors to the names of the call's tensors, or to "" if the call omits the
    tensor.
    """
    if len(given) > len(names):
        raise MalformedModel(f"a call of the model's function {label} has {len(given)} {what}, not {len(names)}")
    padded = [text(raw) for raw in given] + [""] * (len(names) - len(given))
    found = dict(zip((text(raw) for raw in names), padded, strict=True))
    # If the call omits an output, the output gets a local name, because nodes of the function may read it.
    return found if what == "inputs" else {name: own for name, own in found.items() if own}


def _bound(attributes: Sequence[Values], given: Mapping[str, Values]) -> Iterator[Values]:
    """Iterates over the attributes of a node, with references replaced by attributes of the call. If neither the call
    nor the function has the referenced attribute, the node's attribute is omitted, so that the operator uses its
    default.
    """
    for attribute in attributes:
        if "ref_attr_name" not in attribute:
            yield attribute
        elif (value := given.get(text(attribute["ref_attr_name"]))) is not None:
            yield {**value, "name": attribute.get("name", b"")}


def _raw(name: str) -> memoryview:
    return memoryview(name.encode())
