"""A group: the operators of the QNN graph that one kernel computes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import BIAS, NO_HALO, Halo, Image
from service.compiler.kernels.matrices import Matrices, Strided
from service.compiler.kernels.moves import Move
from service.compiler.kernels.rows import Access, Output, Region, RowsKernel
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType

Shape = tuple[int, ...]

# Of float32, on tensors as the model has them.
REAL_PRODUCTS = ("qnn.block_matmul", "qnn.real_conv2d", "qnn.real_matmul")


@dataclass(frozen=True)
class Group:
    """An operator, what takes its accumulators to storage, and a residual that is added.

    Attributes:
        name: of the output, as in the model.
        core: `qnn.conv2d`, `qnn.dense`, `qnn.add` …
        requantize: after a `core` that gives accumulators, unless they are the output; a `qnn.requantize_add` takes the
            residual itself, and a `qnn.dequantize` gives real values.
        addition: a `qnn.add` of the result and something else of the same shape.
        inputs: the data operands: those of `core` that are not `uniform` constants, then the residual.
        output: what the group computes.
        channels_first: whether the result is written as `[N, C, H, W]`; then `output` is a permutation of it.
        matrices: of a product of two computed matrices, how they lie in the inputs, and the result in the output.
    """

    name: str
    core: Operation
    requantize: Operation | None
    addition: Operation | None
    inputs: tuple[relax.Var, ...]
    output: relax.Var
    channels_first: bool = False
    matrices: tuple[Strided, Strided, Strided] | None = None

    @property
    def last(self) -> Operation:
        return self.addition or self.requantize or self.core

    @property
    def out_type(self) -> QuantizedType:
        return self.last.per_tensor("out_type")

    @property
    def kind(self) -> str:
        """E.g. `conv2d+requantize+add`."""
        parts = (self.core, self.requantize, self.addition)
        return "+".join(part.name.removeprefix("qnn.") for part in parts if part is not None)

    @property
    def wide(self) -> bool:
        """Whether the output is not stored in 8 bits: it is a contiguous tensor then, not an image."""
        return str(self.output.ty.dtype) not in BIAS

    @property
    def without_addition(self) -> Group | None:
        """The group without its residual addition; None if there is none."""
        if self.addition is None:
            return None
        output = self.addition.call.args[1 if self.residual_is_lhs else 0]
        return replace(self, name=str(output.name), addition=None, inputs=self.inputs[:-1], output=output)

    @property
    def residual_is_lhs(self) -> bool:
        return self.addition is not None and bool(self.addition.call.args[0].same_as(self.inputs[-1]))


@dataclass(frozen=True)
class Demand:
    """A kernel's requirement on the layout of one of its inputs.

    Attributes:
        packed: channels of a pixel side by side, not in blocks.
        fill: what the halo holds, as stored.
    """

    packed: bool = False
    halo: Halo = NO_HALO
    fill: int = 0


@dataclass(frozen=True)
class PlainKernel:
    """A kernel on contiguous tensors of the model's own dtypes.

    Attributes:
        padding: rows and columns that its input has to get first.
        fill: what they hold.
    """

    kernel: Kernel
    padding: Halo
    fill: int


@dataclass(frozen=True)
class LstmStep:
    """The operators of one step of an LSTM: `qnn.dense` of the hidden state, `qnn.rescale` on top of what the input
    adds, `qnn.lstm_cell`, `qnn.lstm_output`."""

    dense: Operation
    rescale: Operation
    update: Operation
    output: Operation


@dataclass(frozen=True)
class LstmKernel:
    """A kernel for a sequence of steps: of `[T * N, gates * C] int16`, the hidden state and the cell state.

    Attributes:
        outputs: elements and dtype of each output: hidden states of all steps, the last cell state, then memory of the
            kernel's own.
    """

    kernel: Kernel
    outputs: tuple[tuple[int, str], ...]


class KernelLibrary(Protocol):
    """The kernels of one architecture for one target and numerics mode."""

    block: int

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        """The layouts in which a kernel for `group` needs its inputs.

        Args:
            produced: for each input, whether a kernel makes it, so that it is blocked.

        Raises:
            Declined: there is no kernel for this group.
        """

    def places(self, group: Group) -> list[int | None]:
        """For each input, the block of the output at which it may lie in the output's own memory, written there by
        whoever makes it; None for an input that needs memory of its own.

        Args:
            group: one that `demands` accepted.
        """

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        """The kernel for a group that `demands` accepted.

        Args:
            destination: contiguous where the group is `wide`.
            placed: the inputs that lie in their `places` already: the kernel does not take them.
        """

    def plain(self, group: Group) -> PlainKernel:
        """The kernel for a group whose inputs are not stored in 8 bits.

        Raises:
            Declined: there is none.
        """

    def check_product(self, group: Group) -> None:
        """Whether `product` takes a `qnn.matmul`.

        Raises:
            Declined: it does not.
        """

    def product(self, group: Group, lhs: Matrices, rhs: Matrices, out: Matrices, *, transposed: bool) -> Kernel:
        """The kernel for a group that `check_product` accepted.

        Args:
            transposed: whether the second operand's rows are columns.
        """

    def lstm(self, step: LstmStep, steps: int) -> LstmKernel:
        """The kernel for so many steps of an LSTM.

        Raises:
            Declined: there is none.
        """

    def check_row_operator(self, name: str, call: relax.Expr, operation: Operation | None) -> None:
        """Whether a region of rows may have an operator.

        Raises:
            Declined: it may not.
        """

    def rows(self, region: Region, sources: Sequence[Access], outputs: Sequence[Output]) -> RowsKernel:
        """The kernel of a region of operators that `check_row_operator` accepted.

        Args:
            sources: how the region's inputs lie in memory.
            outputs: where its outputs go.
        """

    def part_tables(self, join: Operation) -> Sequence[NDArray[np.uint8] | None]:
        """What becomes of the bytes, as stored, of each part of a `qnn.concatenate`, `[256]`; None where they stay.

        Raises:
            Declined: a part is not of 8 bits with one scale.
        """

    def move(self, made: Move) -> Kernel:
        """The kernel that makes a tensor of elements of others.

        Raises:
            Declined: they lie too much asunder.
        """

    def pack(
        self,
        destination: Image,
        dtype: str,
        fill: int,
        quantize: Operation | None = None,
        *,
        channels_first: bool = False,
    ) -> Kernel:
        """From a contiguous tensor `[N, H, W, C]`, or `[N, C, H, W]`, of `dtype`; of float32, with a `qnn.quantize` of
        it."""

    def check_quantize(self, operation: Operation) -> None:
        """Whether `pack` takes a `qnn.quantize`.

        Raises:
            Declined: it does not.
        """

    def unpack(self, source: Image, dtype: str, *, channels_first: bool = False) -> Kernel:
        """To a contiguous tensor `[N, H, W, C]`, or `[N, C, H, W]`, of `dtype`."""


def image_shape(shape: Shape) -> tuple[int, int, int, int] | None:
    """`shape` as `[N, H, W, C]`; None where it is none.

    The rows of a matrix are images of one pixel, so that a classifier reads its means as they are. The tokens of
    `[N, T, C]` are the pixels of a column.
    """
    match shape:
        case (batch, height, width, channels):
            return batch, height, width, channels
        case (batch, tokens, channels):
            return batch, tokens, 1, channels
        case (rows, channels):
            return rows, 1, 1, channels
        case _:
            return None


def uniform(value: NDArray[Any]) -> bool:
    """Whether all elements are the same."""
    return value.size > 0 and bool((value == value.flat[0]).all())


def stored_zero_point(quantized: QuantizedType) -> int:
    return quantized.zero_point + BIAS[quantized.storage]


def shape_of(expr: Any) -> Shape:
    return tuple(int(dim) for dim in expr.ty.shape)
