"""A graph during its rewriting, with the producer and the readers of each tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

UNBOUNDED = (-math.inf, math.inf)
# The attribute of a conversion that the pass has moved after an operator, although the framework leaves it before that
# operator. For the operators that read its result, the framework therefore finds no conversion.
MOVED = "octet.moved"


@dataclass(frozen=True, eq=False)
class Operator:
    """A node of the graph.

    Attributes:
        index: the operator's index in the file.
        inputs: names of tensors, or "" for an optional input that is omitted.
        attributes: the operator's other properties in the file, by name.
        clamp: real bounds of the output, from an activation that `fuse` has put into the operator.
        written: the operator type in the file, if a pass replaced the operator by one of another type; otherwise "".
    """

    index: int
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    clamp: tuple[float, float] = UNBOUNDED
    written: str = ""

    @property
    def label(self) -> str:
        """The operator as error messages name it, with its type in the file: `Conv #17`."""
        return f"{self.written or self.op_type} #{self.index}"


class Graph:
    """The graph in its current state.

    Attributes:
        operators: the operators in an order in which they can be computed.
        ends: names of the model's outputs.
        producers, readers: by the tensor's name.
    """

    def __init__(self, names: Iterable[str], ends: Iterable[str]) -> None:
        """`names` are the names of all existing tensors. New tensors get other names."""
        self.operators: list[Operator] = []
        self.ends = set(ends)
        self.producers: dict[str, Operator] = {}
        self.readers: dict[str, list[Operator]] = {}
        self._names = set(names)

    def append(self, operator: Operator) -> None:
        self.operators.append(operator)
        for name in filter(None, operator.outputs):
            self.producers[name] = operator
        for name in operator.inputs:
            self.readers.setdefault(name, []).append(operator)

    def replace_all(self, operators: Iterable[Operator]) -> None:
        self.operators, self.producers, self.readers = [], {}, {}
        for operator in list(operators):
            self.append(operator)

    def new_name(self, stem: str) -> str:
        name, number = f"{stem}_stored", 0
        while name in self._names:
            number += 1
            name = f"{stem}_stored_{number}"
        self._names.add(name)
        return name

    def made_by(self, name: str, *kinds: str) -> Operator | None:
        """Returns the operator that computes `name`, if its type is one of `kinds`."""
        operator = self.producers.get(name)
        return operator if operator is not None and operator.op_type in kinds else None

    def only_reader(self, name: str) -> Operator | None:
        """Returns the operator that reads `name`, if only this operator reads `name` and `name` is not an output of the
        model.
        """
        readers = self.readers.get(name, [])
        return readers[0] if name and len(readers) == 1 and name not in self.ends else None
