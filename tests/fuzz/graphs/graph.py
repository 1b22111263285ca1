"""A model as a list of operators on named tensors. Generators draw such graphs, and the minimizer reduces them.

A graph is similar to its file: an operator has the name, the options and the operand order of the format. So graphs of
TFLite and of ONNX share only this data structure. `tests.fuzz.graphs.formats` writes both to bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from service.core.models.arrays import Array

Rng = np.random.Generator

OMITTED = ""  # the name of an optional operand that is omitted


@dataclass(frozen=True)
class Quantization:
    """The quantization of a TFLite tensor: one scale, or one scale for each index of `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True)
class Tensor:
    """A tensor. If it has `data`, it is a constant of the file."""

    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    data: Array | None = None


@dataclass(frozen=True)
class Operator:
    """A node. `options` are ONNX's attributes, or the fields of TFLite's options table."""

    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(frozen=True)
class Graph:
    """A whole model. Operators are in topological order; `inputs` and `outputs` are names of tensors."""

    format: str
    tensors: Mapping[str, Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def operator_types(self) -> list[str]:
        return sorted({operator.type for operator in self.operators})

    def pruned(self) -> Graph:
        """Returns the graph without the operators and tensors that no output depends on."""
        needed, kept = set(self.outputs), list[Operator]()
        for operator in reversed(self.operators):
            if needed.intersection(operator.outputs):
                kept.append(operator)
                needed.update(operator.inputs)
        kept.reverse()
        named = needed.union(*(operator.outputs for operator in kept)) - {OMITTED}
        return replace(
            self,
            operators=tuple(kept),
            inputs=tuple(name for name in self.inputs if name in needed),
            tensors={name: tensor for name, tensor in self.tensors.items() if name in named},
        )

    def cut_behind(self, index: int) -> Graph:
        """Returns the graph whose outputs are those of the operator at `index`."""
        return replace(self, outputs=self.operators[index].outputs).pruned()

    def without(self, index: int) -> Graph:
        """Returns the graph without the operator at `index`; its results become inputs."""
        left = self.operators[:index] + self.operators[index + 1 :]
        read = {name for operator in left for name in operator.inputs} | set(self.outputs)
        results = tuple(name for name in self.operators[index].outputs if name in read)
        return replace(self, operators=left, inputs=self.inputs + results).pruned()

    def smaller(self) -> Iterator[Graph]:
        """Yields smaller graphs, the smallest first. Some of them may be invalid."""
        for index in range(len(self.operators) - 1):
            yield self.cut_behind(index)
        if len(self.outputs) > 1:
            for name in self.outputs:
                yield replace(self, outputs=(name,)).pruned()
        if len(self.operators) > 1:
            for index in range(len(self.operators)):
                yield self.without(index)


class Unsuitable(Exception):
    """The drawn operator does not support the drawn operand."""


class GraphWriter:
    """A graph while it is drawn, operator by operator. All values are known for one random input.

    Attributes:
        rng: the source of all random choices.
        samples: the elements of every tensor, computed for that input.
        reals: results that are not quantized and not read by any operator.
    """

    def __init__(self, file_format: str, rng: Rng) -> None:
        self._format = file_format
        self.rng = rng
        self.tensors: dict[str, Tensor] = {}
        self.operators: list[Operator] = []
        self.inputs: list[str] = []
        self.reals: list[str] = []
        self.samples: dict[str, Array] = {}

    def choose(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def often(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def stored(self, shape: Sequence[int], dtype: str) -> Array:
        """Returns integers for a constant. They cover the whole range, or only a few values."""
        info = np.iinfo(dtype)
        if self.often(0.15):
            return self.rng.choice([info.min, info.max, 0, 1], tuple(shape)).astype(dtype)
        return self.rng.integers(info.min, info.max, tuple(shape), dtype, endpoint=True)

    def add(self, tensor: Tensor, stem: str = "t") -> str:
        name = f"{stem}{len(self.tensors)}"
        self.tensors[name] = tensor
        if tensor.data is not None:
            self.samples[name] = tensor.data
        return name

    def count(self) -> tuple[int, ...]:
        """Returns a mark for `withdraw`: how much has been drawn so far."""
        return len(self.operators), len(self.inputs), len(self.reals)

    def withdraw(self, count: tuple[int, ...]) -> None:
        """Removes everything that was drawn since `count`."""
        del self.operators[count[0] :], self.inputs[count[1] :], self.reals[count[2] :]

    def input(self, tensor: Tensor) -> str:
        self.inputs.append(self.add(tensor, "x"))
        return self.inputs[-1]

    def constant(self, data: Any, dtype: str | None = None, quantization: Quantization | None = None) -> str:
        array = np.asarray(data, dtype)
        return self.add(Tensor(array.shape, array.dtype.name, quantization, array), "c")

    def graph(self, outputs: tuple[str, ...]) -> Graph:
        whole = Graph(self._format, dict(self.tensors), tuple(self.operators), tuple(self.inputs), outputs)
        return whole.pruned()


Writer = TypeVar("Writer", bound=GraphWriter)


def draw(writer: Writer, operators: Sequence[Callable[[Writer], None]], most: int) -> None:
    """Adds up to `most` operators, each by one of the functions `operators`."""
    wanted, drawn = int(writer.rng.integers(1, most + 1)), 0
    for _ in range(12 * wanted):
        if drawn == wanted:
            return
        operator = operators[int(writer.rng.integers(len(operators)))]
        before = writer.count()
        try:
            operator(writer)
            drawn += 1
        except Unsuitable:
            writer.withdraw(before)


def need(condition: bool, why: str) -> None:
    """
    Raises:
        Unsuitable: `condition` is false.
    """
    if not condition:
        raise Unsuitable(why)
