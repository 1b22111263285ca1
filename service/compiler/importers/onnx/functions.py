"""Puts the nodes of a model's own functions in the place of their calls.

A `FunctionProto` (onnx/docs/IR.md, "Functions") is a list of nodes with named inputs, outputs and attributes. The names
of its tensors are local, so every call gets names of its own. A node's attribute may refer to an attribute of the
call (`ref_attr_name`). ONNX Runtime prefers a model's function to an operator of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.compiler.importers.onnx.message import Values
from service.compiler.importers.onnx.model import shortened
from service.compiler.importers.onnx.tensors import text
from service.core.errors import MalformedModel, Unsupported

ONNX_DOMAINS = ("", "ai.onnx")
_MOST_NODES = 50_000  # after inlining: functions that call each other may grow without bound
_DEEPEST = 64
_SEPARATOR = "/"

Key = tuple[str, str, str]  # domain, name, overload


class Functions:
    """The functions of a model.

    Args:
        message: the model.
        opset: version of ONNX's own operators in the model's graph.
    """

    def __init__(self, message: Values, opset: int) -> None:
        self._functions: dict[Key, Values] = {_key(each, "name"): each for each in message.get("functions", ())}
        self._opset = opset
        self._left = _MOST_NODES
        self._calls = 0

    def inlined(self, nodes: Sequence[Values]) -> list[Values]:
        """`nodes` without calls of functions. Of several functions with the same name, the last one counts.

        Raises:
            Unsupported: functions call each other without end, there are too many nodes, or a function uses another
                operator set than the model.
            MalformedModel: a call does not fit its function.
        """
        return list(nodes) if not self._functions else list(self._expanded(nodes, 0))

    def _expanded(self, nodes: Sequence[Values], depth: int) -> Iterator[Values]:
        for node in nodes:
            self._left -= 1  # calls count too: a function without nodes may be called without end
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
                f"the model's function {label} uses operator set {versions[-1]} and the model {self._opset}",
                hint="inline its functions (onnx.inliner), or export it again",
            )

    def _body(self, call: Values, function: Values, label: str) -> list[Values]:
        """The function's nodes with the call's tensors and attributes."""
        self._calls += 1
        prefix = f"{label}{_SEPARATOR}{self._calls}{_SEPARATOR}"
        names = {
            **_paired(call.get("input", ()), function.get("input", ()), label, "inputs"),
            **_paired(call.get("output", ()), function.get("output", ()), label, "outputs"),
        }
        given = {text(each.get("name")): each for each in function.get("attribute_proto", ())}
        given |= {text(each.get("name")): each for each in call.get("attribute", ())}
        return [self._local(node, names, prefix, given, label) for node in function.get("node", ())]

    def _local(
        self, node: Values, names: dict[str, str], prefix: str, given: Mapping[str, Values], label: str
    ) -> Values:
        def renamed(raw: memoryview) -> memoryview:
            name = text(raw)
            return _raw(name and names.setdefault(name, prefix + name))

        result: dict[str, Any] = dict(node)
        for ends in ("input", "output"):
            result[ends] = [renamed(raw) for raw in node.get(ends, ())]
        result["attribute"] = list(_bound(node.get("attribute", ()), given))
        if any("g" in each or "graphs" in each for each in result["attribute"]):
            raise Unsupported(
                f"the model's function {label} has a node {shortened(text(node.get('op_type')))} with a subgraph",
                hint="inline its functions (onnx.inliner)",
            )
        return result


def _key(values: Values, name: str) -> Key:
    domain = text(values.get("domain"))
    return ("" if domain in ONNX_DOMAINS else domain, text(values.get(name)), text(values.get("overload")))


def _paired(given: Sequence[memoryview], names: Sequence[memoryview], label: str, what: str) -> dict[str, str]:
    """The function's names of tensors, by those of the call; "" for what the call leaves out."""
    if len(given) > len(names):
        raise MalformedModel(f"a call of the model's function {label} has {len(given)} {what}, not {len(names)}")
    padded = [text(raw) for raw in given] + [""] * (len(names) - len(given))
    found = dict(zip((text(raw) for raw in names), padded, strict=True))
    # An output that the call leaves out has a local name, because nodes of the function may read it.
    return found if what == "inputs" else {name: own for name, own in found.items() if own}


def _bound(attributes: Sequence[Values], given: Mapping[str, Values]) -> Iterator[Values]:
    """The attributes of a node, with those of the call in place of references to them. A reference to an attribute that
    neither the call nor the function has is left out, so that the operator has its default."""
    for attribute in attributes:
        if "ref_attr_name" not in attribute:
            yield attribute
        elif (value := given.get(text(attribute["ref_attr_name"]))) is not None:
            yield {**value, "name": attribute.get("name", b"")}


def _raw(name: str) -> memoryview:
    return memoryview(name.encode())
