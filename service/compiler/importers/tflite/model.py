"""A TFLite model as plain values: the file's contents after they were checked, independent of their layout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from service.compiler.importers.names import shortened
from service.core.models.arrays import Array

OptionValue = int | float | bool | str | tuple[int, ...]


@dataclass(frozen=True)
class Quantization:
    """The quantization real = scale * (stored - zero_point). There is one scale and zero point, or one of each for
    every index of `axis`.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int

    @property
    def per_axis(self) -> bool:
        """True if there are several scales along `axis`. LiteRT treats a single scale as per-tensor, whatever the
        axis.
        """
        return len(self.scales) > 1

    def fault_for(self, dtype: str) -> str | None:
        """Returns the reason why operators cannot use this quantization, such as "scale is 0.0", or None if they
        can.
        """
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
        size: the size of a dense dimension.
        starts, indices: the segments and indices of a compressed dimension; None for a dense dimension.
    """

    size: int
    starts: Array | None = None
    indices: Array | None = None


@dataclass(frozen=True, eq=False)
class Sparse:
    """The stored elements of a sparse constant, `[count]`, and their positions (`tflite/file/sparse.py`).

    Attributes:
        order: the dimension that belongs to each level: first those of the shape, then those of `blocks`.
        blocks: the dimensions of the shape that are divided into blocks.
    """

    elements: Array
    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Blocks:
    """The quantization in blocks along the last dimension. Each block has its own scale.

    Attributes:
        scales: the index of the tensor with the scales, float16 `[…, blocks]`.
        size: the number of elements of a block.
    """

    scales: int
    size: int


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the graph.

    Attributes:
        name: the name in the file; may be empty, and need not be unique.
        dtype: numpy's name of the element type, or the schema's name in lower case if numpy has none (`int4`).
        signature: the shape, with -1 for each size that depends on the inputs. (`shape` has 1 there, and LiteRT
            recomputes the size.) Empty if the file does not specify it.
        storage: a number that constants have in common if they share their bytes; None for computed tensors and inputs.
        data: the elements of a constant that operators can use, read-only.
        is_variable: true if the tensor's elements persist from one call to the next.
        is_open: true if the file has -1 as a size in `shape` too, so that LiteRT runs the model only after its caller
            has resized this input.
        oddity: the reason why no operator can use the tensor, such as "is sparse"; None if operators can use it.
        sparse: the stored elements of a sparse constant, which only DENSIFY can use.
        packed_bits: the bits of an element of a constant that is packed in the file (int4, int2) and int8 here; else
            0.
        blocks: the quantization in blocks of a constant, which only some operators can use.
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
    is_open: bool = False
    oddity: str | None = None
    sparse: Sparse | None = None
    packed_bits: int = 0
    blocks: Blocks | None = None

    @property
    def is_constant(self) -> bool:
        return self.storage is not None

    @property
    def label(self) -> str:
        """The tensor's name in error messages."""
        return shortened(self.name) or f"tensor #{self.index}"

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class Operator:
    """A node of the graph. Inputs and outputs are indices into `Model.tensors`; -1 represents an optional input that is
    omitted.

    Attributes:
        intermediates: tensors that are never stored. The quantization of these tensors determines how the kernel
            computes.
        graph: the number of the subgraph that contains the operator.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, OptionValue] | None
    custom_options: bytes = b""
    intermediates: tuple[int, ...] = ()
    graph: int = 0

    @property
    def label(self) -> str:
        """The operator's name in error messages: `CONV_2D #17`, or `ADD #1 of subgraph 2`."""
        return f"{self.name} #{self.index}" + (f" of subgraph {self.graph}" if self.graph else "")


# Operator -> the options that name the subgraphs which it runs.
_CALLS = {
    "CALL": ("subgraph",),
    "CALL_ONCE": ("init_subgraph_index",),
    "IF": ("then_subgraph_index", "else_subgraph_index"),
    "STABLEHLO_COMPOSITE": ("decomposition_subgraph_index",),
    "WHILE": ("cond_subgraph_index", "body_subgraph_index"),
}


def called_by(operator: Operator) -> tuple[int, ...]:
    """Returns the numbers of the subgraphs that an operator runs, in the order of its options."""
    options = operator.options or {}
    return tuple(int(cast(int, options.get(name, 0))) for name in _CALLS.get(operator.name, ()))


@dataclass(frozen=True)
class Signature:
    """Names that the file gives to inputs and outputs: name -> tensor index."""

    key: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class State:
    """A tensor whose elements persist from one call to the next.

    Attributes:
        name: the variable's name, or "" if the tensor's name is used.
        tensor: the tensor at the start of a call.
        result: the tensor at the end of a call. It equals `tensor` if an operator changes the state in place.
        initial: the elements before the first call.
    """

    name: str
    tensor: int
    result: int
    initial: Array


@dataclass(frozen=True)
class Subgraph:
    """A graph; its operators are in an order in which they can be computed.

    Attributes:
        number: the index among the subgraphs of the file.
    """

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    number: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class Model(Subgraph):
    """The first subgraph of a file, and the file's other properties.

    Attributes:
        subgraphs: number -> a subgraph that an operator runs, directly or through other subgraphs.
        other_entries: the keys of the signatures that run another subgraph than the first.
        states: the tensors that persist between calls, as found by `variables.find_states`.
    """

    signatures: tuple[Signature, ...]
    size_bytes: int
    other_entries: tuple[str, ...] = ()
    subgraphs: Mapping[int, Subgraph] = field(default_factory=dict)
    states: tuple[State, ...] = ()
