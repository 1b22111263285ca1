"""The kernels of one GPU compute capability."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.kernels.arithmetic.conversion import quantization_of
from service.compiler.kernels.arithmetic.tables import is_identity, part_tables
from service.compiler.kernels.choices import Choices
from service.compiler.kernels.cuda.families import FAMILIES
from service.compiler.kernels.cuda.gpus import Gpu
from service.compiler.kernels.cuda.operators import reorder
from service.compiler.kernels.cuda.operators.moves import move
from service.compiler.kernels.cuda.types.images import BLOCK
from service.compiler.kernels.families import Families
from service.compiler.kernels.group import Group, LstmKernel, LstmStep, PlainKernel
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.matrices import Matrices
from service.compiler.kernels.moves import Move
from service.compiler.kernels.rows import Access, Output, Region, RowsKernel
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_NOT_YET = "no GPU kernel computes it"


class CudaLibrary(Families):
    """The `KernelLibrary` of one compute capability and one numerics mode."""

    block = BLOCK

    def __init__(self, gpu: Gpu, mode: Mode, choices: Choices | None = None) -> None:
        self.card, self.mode = gpu, mode
        choices = choices or Choices()
        super().__init__({name: family(gpu, mode, choices) for name, family in FAMILIES.items()})

    def plain(self, group: Group) -> PlainKernel:
        raise Declined(_NOT_YET)

    def check_product(self, group: Group) -> None:
        raise Declined(_NOT_YET)

    def product(self, group: Group, lhs: Matrices, rhs: Matrices, out: Matrices, *, transposed: bool) -> Kernel:
        raise Declined(_NOT_YET)

    def lstm(self, step: LstmStep, steps: int) -> LstmKernel:
        raise Declined(_NOT_YET)

    def check_row_operator(self, name: str, call: relax.Expr, operation: Operation | None) -> None:
        raise Declined(_NOT_YET)

    def rows(
        self, region: Region, sources: Sequence[Access], outputs: Sequence[Output], *, has_length: bool = False
    ) -> RowsKernel:
        raise Declined(_NOT_YET)

    def part_tables(self, join: Operation) -> list[Array | None]:
        return [None if is_identity(table) else table for table in part_tables(self.mode, join)]

    def move(self, made: Move) -> Kernel:
        return move(made)

    def pack(
        self,
        destination: Image,
        dtype: str,
        fill: int,
        quantize: Operation | None = None,
        *,
        channels_first: bool = False,
    ) -> Kernel:
        quantization = None if quantize is None else quantization_of(self.mode, quantize)
        return reorder.pack(destination, dtype, fill, quantization, channels_first=channels_first)

    def check_quantize(self, operation: Operation) -> None:
        quantization_of(self.mode, operation)

    def unpack(self, source: Image, dtype: str, *, channels_first: bool = False) -> Kernel:
        return reorder.unpack(source, dtype, channels_first=channels_first)
