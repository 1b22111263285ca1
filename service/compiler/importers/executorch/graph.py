"""The graph of the XNNPACK delegate as plain, checked values, independent of the file's layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.compiler.importers.flatbuffer.tables import Row
from service.core.models.arrays import Array


@dataclass(frozen=True, eq=False)
class Scales:
    """The quantization of a value.

    Attributes:
        scales: one; one for each index of `axis`; or `[O, K / block]` for weights in blocks, row by row.
        zero_point: 0 for weights with several scales.
        block: the number of weights in a block; 0 for weights without blocks.
    """

    scales: tuple[float, ...]
    zero_point: int = 0
    axis: int | None = None
    block: int = 0


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value of the graph.

    Attributes:
        number: by which nodes refer to it.
        datatype: a number of the enumeration XNNDatatype.
        shape: images are `[N, H, W, C]`.
        scales: None for real values, and for values that are quantized when the model runs.
        external: the index of the delegate's argument that this value is; None for an inner value.
        data: the elements of a constant; two weights of 4 bits for each byte.
    """

    number: int
    datatype: int
    shape: tuple[int, ...]
    scales: Scales | None = None
    external: int | None = None
    data: Array | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Operator:
    """A node of the graph.

    Attributes:
        name: in the union XNodeUnion, without `XNN`: `Conv2d`.
        fields: the node's table.
        bounds: the smallest and the largest real value of the result; None if it is not clamped.
    """

    index: int
    name: str
    fields: Row = field(repr=False)
    bounds: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        return f"XNNPACK {self.name} #{self.index}"


@dataclass(frozen=True, eq=False)
class Graph:
    """The delegate's graph.

    Attributes:
        operators: in an order in which they can be computed.
        inputs, outputs: numbers of `tensors`.
    """

    tensors: Mapping[int, Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
