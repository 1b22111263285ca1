"""Reads `-symbol.json`: nodes in an order in which they can be computed (nnvm's src/pass/saveload_json.cc)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from service.compiler.importers.mxnet.attributes import Attributes
from service.compiler.importers.names import printable
from service.core.errors import MalformedModel

VARIABLE = "null"
Entry = tuple[int, int]  # the index of a node, and of one of its outputs
T = TypeVar("T")

_MOST_NODES = 1 << 16
_LABEL_LENGTH = 120
_MOST_OUTPUTS = 1 << 10


@dataclass(frozen=True)
class SymbolNode:
    """A variable (an input or a parameter) or an operator.

    Attributes:
        subgraph: the operators that were fused into a `_sg_*` operator.
    """

    index: int
    op: str
    name: str
    attributes: Attributes
    inputs: tuple[Entry, ...]
    subgraph: tuple[SymbolNode, ...] = ()

    @property
    def label(self) -> str:
        """The node as error messages name it: `Convolution conv0`."""
        return _label(self.op, self.name)


@dataclass(frozen=True)
class Symbol:
    """The graph: its nodes, and references to the node outputs that the model returns."""

    nodes: tuple[SymbolNode, ...]
    heads: tuple[Entry, ...]


def read_symbol(data: bytes) -> Symbol:
    """Reads the graph in a file.

    Raises:
        MalformedModel: the file is not well formed, or a node reads a value that no earlier node computes.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise MalformedModel(f"the symbol is not JSON: {exc}"[:200]) from exc
    nodes = _nodes(document, nested=False)
    heads = _entries(document, "heads", len(nodes), "the symbol's heads")
    if not heads:
        _malformed("has no heads, so the model has no outputs")
    return Symbol(nodes, heads)


def _nodes(document: Any, *, nested: bool) -> tuple[SymbolNode, ...]:
    found = _member(document, "nodes", list, "has no nodes")
    if not 0 < len(found) <= _MOST_NODES:
        _malformed(f"has {len(found)} nodes, not 1 to {_MOST_NODES}")
    return tuple(_node(node, index, nested) for index, node in enumerate(found))


def _node(node: Any, index: int, nested: bool) -> SymbolNode:
    op, name = (_member(node, key, str, f"has a node without {key}") for key in ("op", "name"))
    label = _label(op, name)
    inputs = _entries(node, "inputs", index, label)
    subgraphs = [] if nested else node.get("subgraphs", [])
    if not isinstance(subgraphs, list) or len(subgraphs) > 1:
        _malformed(f"has a node {label} with several subgraphs")
    subgraph = _nodes(subgraphs[0], nested=True) if subgraphs else ()
    attributes: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):  # older files have `param` or `attr` instead of `attrs`
        part = node.get(key, {})
        if not isinstance(part, dict) or not all(isinstance(value, str) for value in part.values()):
            _malformed(f"has a node {label} whose {key} are not strings")
        attributes |= part
    return SymbolNode(index, op, name, Attributes(attributes, label), inputs, subgraph)


def _entries(document: Any, key: str, known: int, what: str) -> tuple[Entry, ...]:
    """Reads references to outputs of the first `known` nodes. The third number of a reference is a version, which
    inference does not need.
    """
    entries = _member(document, key, list, f"has no {key}")
    for entry in entries:
        if not isinstance(entry, list) or not 2 <= len(entry) <= 3 or not all(type(part) is int for part in entry):
            _malformed(f"has an invalid reference to a node's output in {what}")
        node, output = entry[:2]
        if not 0 <= node < known or not 0 <= output < _MOST_OUTPUTS:
            _malformed(f"refers to output {output} of node {node} in {what}, which no earlier node computes")
    return tuple((node, output) for node, output, *_ in entries)


def _member(document: Any, key: str, type_: type[T], fault: str) -> T:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, type_) else _malformed(fault)


def _label(op: str, name: str) -> str:
    label = f"{op} {name}"
    return printable(label[:_LABEL_LENGTH]) + ("…" if len(label) > _LABEL_LENGTH else "")


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the symbol {what}")
