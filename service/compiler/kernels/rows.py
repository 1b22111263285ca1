"""Regions of the graph that one kernel computes row by row, so that intermediate values stay in registers and L1 cache.

A region has a *domain*, `[…, columns]`. Each of its values has one element for each element of the domain, or one
element for each row. An operator computes an element from the elements at the same index (and from values of the row),
or reduces a row to one value. For example, a softmax can be a region, or a layer norm with the preceding residual
addition and the following quantization.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvm import relax

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import Image
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

Fill: TypeAlias = int | relax.Var  # the value of a halo, or the tensor that contains it at run time

IDENTITIES = ("", "relax.reshape", "relax.broadcast_to")  # operators that return their operand unchanged
# The operators that reduce a row to one value.
REDUCTIONS = ("relax.max", "relax.min", "qnn.real_mean", "qnn.real_squares", "qnn.real_sum")


@dataclass(frozen=True)
class Access:
    """The memory layout of a tensor. All sizes count elements.

    Attributes:
        dtype: the type of the elements; for an image, unsigned bytes as kernels store them.
        size: the size of the memory.
        strides: the stride of each outer dimension; 0 if the tensor is repeated along it.
        column: the stride from one column to the next: 1, or 0 if the tensor has only one value for each row.
        block: the number of contiguous columns.
        plane: the stride from one block of columns to the next.
        origin: the offset of the first element.
    """

    dtype: str
    size: int
    strides: tuple[int, ...]
    column: int = 1
    block: int = 0
    plane: int = 0
    origin: int = 0

    @staticmethod
    def of_image(image: Image, shape: Sequence[int]) -> Access:
        """Returns the layout of an image in blocks, as a tensor of `shape`.

        Apart from dimensions of length 1, `shape` must have the dimensions of the image.
        """
        extents, steps = (image.batch, image.height, image.width), (image.image, image.row, image.pixel)
        own = iter([step for extent, step in zip(extents, steps, strict=True) if extent != 1])
        strides = tuple(0 if extent == 1 else next(own) for extent in shape[:-1])
        return Access("uint8", image.size_bytes, strides, 1, image.block, image.plane, image.origin)

    def along(self, axes: Sequence[int]) -> Access:
        """Returns the layout with the strides of the dimensions `axes`. An axis of -1 gets the stride 0."""
        return replace(self, strides=tuple(0 if axis < 0 else self.strides[axis] for axis in axes))


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator of a region reads from memory.

    Attributes:
        tensor: a variable or a constant.
        strides, column: as in `Access`, for the contiguous tensor.
        axes: for each outer dimension of the domain, the axis of the tensor; -1 if the tensor is repeated along it.
    """

    tensor: relax.Var | Array
    strides: tuple[int, ...]
    column: int
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One operator of a region.

    Attributes:
        var: the operator's result.
        name: `relax.add`, `qnn.quantize` …; "" if the operator returns its operand unchanged.
        call: the call of the operator.
        operation: the operator as a QNN operation, if it is one.
        operands: for each operand, the variable of an earlier step, an operand in memory, or a number for a constant
            whose elements are all equal.
        of_row: true if the result has one value for each row.
        reduces: true if the operator computes this value from all elements of the row.
    """

    var: relax.Var
    name: str
    call: relax.Expr
    operation: Operation | None
    operands: tuple[relax.Var | Operand | float | int | bool, ...]
    of_row: bool
    reduces: bool


@dataclass(frozen=True)
class Region:
    """Operators that one kernel computes.

    Attributes:
        name: the name of the region's last result.
        outer: the dimensions of the domain except the last one, without those of length 1.
        columns: the last dimension of the domain.
        steps: the operators in order.
        outputs: the results that are read outside of the region.
    """

    name: str
    outer: tuple[int, ...]
    columns: int
    steps: tuple[Step, ...]
    outputs: tuple[relax.Var, ...]

    @property
    def inputs(self) -> list[relax.Var]:
        """The variables that the region reads, without repetitions."""
        seen: dict[relax.Var, None] = {}
        for step in self.steps:
            for operand in step.operands:
                if isinstance(operand, Operand) and isinstance(operand.tensor, relax.Var):
                    seen.setdefault(operand.tensor)
        return list(seen)

    @property
    def operators(self) -> str:
        """The names of the operators for reports, for example `dequantize+real_sum+divide+…`."""
        names = [step.name.removeprefix("relax.").removeprefix("qnn.") for step in self.steps if step.name]
        return "+".join(names)


@dataclass(frozen=True)
class Output:
    """The memory layout of a region's result.

    Attributes:
        image: the layout, if the result is an image.
        fill: the stored value of the halo; or an input of the region, float32, that contains an int8 value for each
            image.
    """

    access: Access
    image: Image | None = None
    fill: Fill = 0


@dataclass(frozen=True)
class RowsKernel:
    """The kernel of a region.

    Attributes:
        memory: the number of float32 elements of the kernel's scratch memory, which is a parameter after the outputs.
    """

    kernel: Kernel
    memory: int
