"""Rows: a region of the graph that one kernel computes row by row, so that what is between its operators stays in
registers and the first level of cache.

A region has a *domain*, `[…, columns]`. Each of its values has an element for each place of the domain, or one for each
row. Its operators compute an element of the elements at the same place (and of the row's values), or reduce a row to a
value. So a softmax is a region, and so are a layer norm with the residual before it and the quantization behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from numpy.typing import NDArray
from tvm import relax

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import Image
from service.compiler.qnn.operation import Operation

Fill: TypeAlias = int | relax.Var  # what a halo holds, or the tensor that says so when the model runs

IDENTITIES = ("", "relax.reshape", "relax.broadcast_to")  # operators that compute nothing
# Of a row to a value.
REDUCTIONS = ("relax.max", "relax.min", "qnn.real_mean", "qnn.real_squares", "qnn.real_sum")


@dataclass(frozen=True)
class Access:
    """How a tensor lies in memory, in elements.

    Attributes:
        dtype: of the memory; bytes are unsigned, as kernels store them, where it is an image.
        size: of the memory.
        strides: from one index of each outer dimension to the next; 0 where the tensor is repeated.
        column: from one column to the next: 1, or 0 where there is one value for a row.
        block: columns that lie side by side.
        plane: from one block to the next.
        origin: of the first element.
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
        """Of an image in blocks, as a tensor of `shape`, whose dimensions but those of length 1 are the image's."""
        extents, steps = (image.batch, image.height, image.width), (image.image, image.row, image.pixel)
        own = iter([step for extent, step in zip(extents, steps, strict=True) if extent != 1])
        strides = tuple(0 if extent == 1 else next(own) for extent in shape[:-1])
        return Access("uint8", image.size_bytes, strides, 1, image.block, image.plane, image.origin)

    def along(self, axes: Sequence[int]) -> Access:
        """With the strides of some dimensions only; 0 for those that are -1."""
        return replace(self, strides=tuple(0 if axis < 0 else self.strides[axis] for axis in axes))


@dataclass(frozen=True)
class Operand:
    """A tensor that a region reads from memory, as one of its operators sees it.

    Attributes:
        tensor: a variable, or a constant.
        strides, column: as in `Access`, of the tensor as the model has it.
        axes: for each outer dimension of the domain, the tensor's own; -1 where it is repeated.
    """

    tensor: relax.Var | NDArray[Any]
    strides: tuple[int, ...]
    column: int
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One operator of a region.

    Attributes:
        var: what it computes.
        name: `relax.add`, `qnn.quantize` …; "" where it only names its operand.
        call: the operator.
        operation: the same, where it is one of the dialect.
        operands: variables of earlier steps, or what lies in memory; numbers are constants that are uniform.
        of_row: whether it has one value for each row.
        reduces: whether it makes that of the elements of a row.
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
        name: of its last result.
        outer: the dimensions of the domain but the last, without those of length 1.
        columns: the last.
        steps: in order.
        outputs: what is read elsewhere.
    """

    name: str
    outer: tuple[int, ...]
    columns: int
    steps: tuple[Step, ...]
    outputs: tuple[relax.Var, ...]

    @property
    def inputs(self) -> list[relax.Var]:
        """The variables that it reads, once each."""
        seen: dict[relax.Var, None] = {}
        for step in self.steps:
            for operand in step.operands:
                if isinstance(operand, Operand) and isinstance(operand.tensor, relax.Var):
                    seen.setdefault(operand.tensor)
        return list(seen)

    @property
    def operators(self) -> str:
        """E.g. `dequantize+real_sum+divide+…`, for reports."""
        names = [step.name.removeprefix("relax.").removeprefix("qnn.") for step in self.steps if step.name]
        return "+".join(names)


@dataclass(frozen=True)
class Output:
    """Where a region's result goes.

    Attributes:
        image: that it is, where it is one.
        fill: what its halo holds, as stored; or an input of the region, float32, with a value of int8 for each image.
    """

    access: Access
    image: Image | None = None
    fill: Fill = 0


@dataclass(frozen=True)
class RowsKernel:
    """The kernel of a region.

    Attributes:
        memory: float32 elements of memory of its own, which it takes behind its outputs.
    """

    kernel: Kernel
    memory: int
