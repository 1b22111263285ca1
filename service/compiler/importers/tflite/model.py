"""A TFLite model as plain values: what the file says, checked, and nothing of how it says it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from service.compiler.importers.tflite.accessors import shortened
from service.core.arrays import Array

OptionValue = int | float | bool | str | tuple[int, ...]


@dataclass(frozen=True)
class Quantization:
    """real = scale * (stored - zero_point): one of each, or one for each index of `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int

    @property
    def per_axis(self) -> bool:
        """Whether scales differ along `axis`; LiteRT takes a single scale as per-tensor, whatever the axis."""
        return len(self.scales) > 1

    def fault_for(self, dtype: str) -> str | None:
        """What makes it none that operators can compute with, as in "scale is 0.0"; None if nothing does."""
        limits = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
        for scale in self.scales:
            if not (scale > 0 and math.isfinite(scale)):
                return f"scale is {scale}"
        for point in self.zero_points:
            if limits is not None and not limits.min <= point <= limits.max:
                return f"zero point is {point}"
        return None


@dataclass(frozen=True, eq=False)
class Level:
    """One dimension of a sparse tensor.

    Attributes:
        size: of a dense one.
        starts, indices: of a compressed one; None of a dense one.
    """

    size: int
    starts: Array | None = None
    indices: Array | None = None


@dataclass(frozen=True, eq=False)
class Sparse:
    """The elements of a constant that the file has, `[count]`, and where they belong (`tflite/sparse.py`).

    Attributes:
        order: of each level, the dimension: those of the shape, then those of `blocks`.
        blocks: the dimensions of the shape that blocks tile.
    """

    elements: Array
    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[Level, ...]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the graph.

    Attributes:
        name: as in the file; may be empty, and need not be unique.
        dtype: numpy's name of the element type, or the schema's name in lower case if numpy has none (`int4`).
        signature: the shape with -1 for each size that the inputs decide (LiteRT computes it anew, `shape` holds
            1 in its place); empty where the file says nothing of it.
        storage: constants with equal numbers share their bytes; None for what is computed or given.
        data: the elements of a constant without oddity, read-only.
        is_variable: whether it keeps its elements from one call to the next.
        oddity: why no operator can use the tensor, as in "is sparse"; None if one may.
        sparse: what DENSIFY alone can use of a constant with that oddity.
    """

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    quantization: Quantization | None = None
    signature: tuple[int, ...] = ()
    storage: int | None = None
    data: Array | None = None
    is_variable: bool = False
    oddity: str | None = None
    sparse: Sparse | None = None

    @property
    def is_constant(self) -> bool:
        return self.storage is not None

    @property
    def label(self) -> str:
        """As errors name it."""
        return shortened(self.name) or f"tensor #{self.index}"


@dataclass(frozen=True)
class Operator:
    """A node of the graph: indices into `Model.tensors`, -1 for an optional input that is left out.

    Attributes:
        intermediates: tensors that nothing holds, but whose quantization the kernel computes with.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, OptionValue] | None
    custom_options: bytes = b""
    intermediates: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """As errors name it: `CONV_2D #17`."""
        return f"{self.name} #{self.index}"


@dataclass(frozen=True)
class Signature:
    """Names that the file gives to inputs and outputs: name -> tensor index."""

    key: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class State:
    """A tensor whose elements are those that the call before left.

    Attributes:
        name: of the variable, unless it is the tensor's own.
        tensor: as the call finds it.
        result: as the call leaves it; the same tensor where its operator writes in place.
        initial: before the first call.
    """

    name: str
    tensor: int
    result: int
    initial: Array


@dataclass(frozen=True)
class Subgraph:
    """Its operators in an order in which they can be computed."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Model(Subgraph):
    """The first subgraph of a file, and what is known of the file besides.

    Attributes:
        initializers: by number, the subgraphs that CALL_ONCE runs before the first call.
        states: what is kept between calls; found by `variables.find_states`.
    """

    signatures: tuple[Signature, ...]
    size_bytes: int
    initializers: Mapping[int, Subgraph] = field(default_factory=dict)
    states: tuple[State, ...] = ()
