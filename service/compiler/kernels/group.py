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
from service.core.models.arrays import Array

Shape = tuple[int, ...]

# The float32 products. Their operands are contiguous tensors, not images in blocks.
REAL_PRODUCTS = ("qnn.block_matmul", "qnn.real_conv2d", "qnn.real_matmul")


_SHORTEST = 16  # tiles are not chosen for shorter inputs, whose products are a small part of the work


@dataclass(frozen=True)
class Length:
    """The length of the input of a model, if it is bound at a call, and what depends on it in a product of matrices.

    Attributes:
        var: the length, `[1]` int32.
        rows, columns: true if nothing reads rows or columns of the result beyond the length.
        depth: true if only as many products as the length are added to each element.
    """

    var: relax.Var
    rows: bool = False
    columns: bool = False
    depth: bool = False

    def lengths(self, longest: int) -> list[int]:
        """Returns the lengths that a tile of rows should be good for."""
        return [rows for rows, _, _ in replace(self, rows=True).shares(longest, longest, longest)]

    def shares(self, rows: int, columns: int, depth: int) -> list[tuple[int, int, int]]:
        """Returns the rows, columns and depth of a product at the longest length, and at each half of the previous
        length that is not too short. A tile should be good for all of them.
        """
        found, part = [(rows, columns, depth)], 2
        sizes = ((rows, self.rows), (columns, self.columns), (depth, self.depth))
        least = min(size for size, depends in sizes if depends)
        while least >= part * _SHORTEST:
            own = [-(-size // part) if depends else size for size, depends in sizes]
            found.append((own[0], own[1], own[2]))
            part *= 2
        return found


@dataclass(frozen=True)
class Group:
    """The operators that one kernel computes: a core operator, and optionally its requantization and a residual
    addition.

    Attributes:
        name: the name of the output in the model.
        core: `qnn.conv2d`, `qnn.dense`, `qnn.add` …
        requantize: the operator that follows a `core` with accumulators, unless the accumulators are the output. This
            operator may be a `qnn.requantize_add`, which includes the residual, or a `qnn.dequantize` to real values.
        addition: a `qnn.add` of the result and another tensor of the same shape.
        inputs: the data operands of `core`, without constants whose elements are all equal (`uniform`); then the
            residual.
        output: the result of the group.
        channels_first: true if the kernel writes the result as `[N, C, H, W]`. `output` is then the variable of the
            permuted tensor.
        matrices: for a product of two computed matrices, the views of the inputs and of the output as matrices.
        length: for a product, what depends on the length of the input; None if nothing does.
    """

    name: str
    core: Operation
    requantize: Operation | None
    addition: Operation | None
    inputs: tuple[relax.Var, ...]
    output: relax.Var
    channels_first: bool = False
    matrices: tuple[Strided, Strided, Strided] | None = None
    length: Length | None = None

    @property
    def last(self) -> Operation:
        return self.addition or self.requantize or self.core

    @property
    def out_type(self) -> QuantizedType:
        return self.last.per_tensor("out_type")

    @property
    def kind(self) -> str:
        """The names of the operators, for example `conv2d+requantize+add`."""
        parts = (self.core, self.requantize, self.addition)
        return "+".join(part.name.removeprefix("qnn.") for part in parts if part is not None)

    @property
    def wide(self) -> bool:
        """True if the output is not stored in 8 bits. It is then a contiguous tensor and not an image."""
        return str(self.output.ty.dtype) not in BIAS

    @property
    def without_addition(self) -> Group | None:
        """Returns the group without its residual addition, or None if the group has no such addition."""
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
        packed: true if all channels of a pixel must be contiguous instead of in blocks.
        fill: the value of the halo, as stored.
    """

    packed: bool = False
    halo: Halo = NO_HALO
    fill: int = 0


@dataclass(frozen=True)
class PlainKernel:
    """A kernel whose operands are contiguous tensors with the dtypes that they have in the model.

    Attributes:
        padding: the rows and columns that must be added to the kernel's input first.
        fill: the value of these rows and columns.
    """

    kernel: Kernel
    padding: Halo
    fill: int


@dataclass(frozen=True)
class LstmStep:
    """The operators of one step of an LSTM.

    These are a `qnn.dense` of the hidden state, a `qnn.rescale` that adds it to the input's contribution, a
    `qnn.lstm_cell` and a `qnn.lstm_output`.
    """

    dense: Operation
    rescale: Operation
    update: Operation
    output: Operation


@dataclass(frozen=True)
class LstmKernel:
    """A kernel for a sequence of steps. Its inputs are `[T * N, gates * C] int16`, the hidden state and the cell state.

    Attributes:
        outputs: (number of elements, dtype) of each output: the hidden states of all steps, the last cell state, and
            scratch memory of the kernel.
    """

    kernel: Kernel
    outputs: tuple[tuple[int, str], ...]


class KernelLibrary(Protocol):
    """The kernels of one architecture for one target and numerics mode."""

    block: int

    def demands(self, group: Group, produced: Sequence[bool]) -> list[Demand]:
        """Returns the layouts in which a kernel for `group` needs its inputs.

        Args:
            produced: for each input, true if it is the output of a kernel and therefore in blocks.

        Raises:
            Declined: no kernel computes this group.
        """

    def places(self, group: Group) -> list[int | None]:
        """Returns, for each input, the channel block of the output from which on the kernel that computes the input may
        write the input directly.

        Such an input shares the memory of the output and need not be copied. An input that needs its own memory gets
        None.

        Args:
            group: a group that `demands` accepted.
        """

    def kernel(
        self, group: Group, sources: Sequence[Image], destination: Image, placed: Collection[int] = ()
    ) -> Kernel:
        """Returns the kernel for a group that `demands` accepted.

        Args:
            destination: contiguous if the group is `wide`.
            placed: the indices of the inputs that are already in their `places` in the output's memory. These inputs
                are not parameters of the kernel.
        """

    def plain(self, group: Group) -> PlainKernel:
        """Returns the kernel for a group whose inputs are not stored in 8 bits.

        Raises:
            Declined: no kernel computes this group.
        """

    def check_product(self, group: Group) -> None:
        """Checks that `product` can compute a `qnn.matmul`.

        Raises:
            Declined: `product` cannot compute this group.
        """

    def product(self, group: Group, lhs: Matrices, rhs: Matrices, out: Matrices, *, transposed: bool) -> Kernel:
        """Returns the kernel for a group that `check_product` accepted.

        Args:
            transposed: true if the second operand is stored transposed.
        """

    def lstm(self, step: LstmStep, steps: int) -> LstmKernel:
        """Returns the kernel for `steps` steps of an LSTM.

        Raises:
            Declined: no kernel computes these steps.
        """

    def check_row_operator(self, name: str, call: relax.Expr, operation: Operation | None) -> None:
        """Checks that a region that is computed row by row (`rows.Region`) can contain an operator.

        Raises:
            Declined: no row kernel computes the operator.
        """

    def rows(
        self, region: Region, sources: Sequence[Access], outputs: Sequence[Output], *, has_length: bool = False
    ) -> RowsKernel:
        """Returns the kernel of a region of operators that `check_row_operator` accepted.

        Args:
            sources: the memory layout of the region's inputs.
            outputs: the memory layout of the region's outputs.
            has_length: true if the number of columns to compute, `[1]` int32, is another operand after the inputs.
                Further columns have no effect.
        """

    def part_tables(self, join: Operation) -> Sequence[NDArray[np.uint8] | None]:
        """Returns a lookup table `[256]` for each part of a `qnn.concatenate`, from the stored bytes of the part to the
        stored bytes of the output.

        A part whose bytes do not change gets None.

        Raises:
            Declined: a part is not an 8-bit tensor with one scale.
        """

    def move(self, made: Move) -> Kernel:
        """Returns the kernel that copies elements of some tensors to another tensor.

        Raises:
            Declined: the elements are scattered too much.
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
        """Returns the kernel that converts a contiguous tensor of `dtype` to an image.

        Args:
            quantize: a `qnn.quantize` to apply to a float32 tensor.
            channels_first: true if the tensor is `[N, C, H, W]`, false if it is `[N, H, W, C]`.
        """

    def check_quantize(self, operation: Operation) -> None:
        """Checks that `pack` can apply a `qnn.quantize`.

        Raises:
            Declined: `pack` cannot apply the operation.
        """

    def unpack(self, source: Image, dtype: str, *, channels_first: bool = False) -> Kernel:
        """Returns the kernel that converts an image to a contiguous tensor `[N, H, W, C]`, or `[N, C, H, W]`."""


def image_shape(shape: Shape) -> tuple[int, int, int, int] | None:
    """Returns the image shape `[N, H, W, C]` for a tensor of `shape`, or None if the tensor cannot be read as an image.

    Each row of a matrix is an image of one pixel, so a classifier can read the output of a global average pooling
    without a layout change. The tokens of `[N, T, C]` are the pixels of an image with one column.
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


def uniform(value: Array) -> bool:
    """Returns true if all elements are equal."""
    return value.size > 0 and bool((value == value.flat[0]).all())


def stored_zero_point(quantized: QuantizedType) -> int:
    return quantized.zero_point + BIAS[quantized.dtype]


def shape_of(expr: Any) -> Shape:
    return tuple(int(dim) for dim in expr.ty.shape)
