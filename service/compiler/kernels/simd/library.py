"""The kernels of one vector instruction set."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tvm import relax

from service.compiler.kernels.arithmetic.conversion import quantization_of
from service.compiler.kernels.arithmetic.tables import is_identity, part_tables
from service.compiler.kernels.choices import Choices
from service.compiler.kernels.families import Families
from service.compiler.kernels.group import REAL_PRODUCTS, Group, LstmKernel, LstmStep, PlainKernel
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.matrices import Matrices
from service.compiler.kernels.moves import Move
from service.compiler.kernels.rows import Access, Output, Region, RowsKernel
from service.compiler.kernels.simd.convolution.plain import plain_kernel
from service.compiler.kernels.simd.families import FAMILIES
from service.compiler.kernels.simd.float.groups import float_kernel
from service.compiler.kernels.simd.lstm import lstm, recurrence
from service.compiler.kernels.simd.memory import reorder
from service.compiler.kernels.simd.memory.moves import move
from service.compiler.kernels.simd.products.numbers import numbers_of
from service.compiler.kernels.simd.products.product import product
from service.compiler.kernels.simd.rows.region import rows
from service.compiler.kernels.simd.rows.softmax import softmax_kernel
from service.compiler.kernels.simd.rows.values import check
from service.compiler.kernels.vector.isa import Isa, worth_sharing
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


class SimdLibrary(Families):
    """The `KernelLibrary` of one instruction set and one numerics mode."""

    def __init__(self, isa: Isa, mode: Mode, choices: Choices | None = None) -> None:
        self._choices = choices = choices or Choices()
        self.isa, self.mode, self.block = isa, mode, isa.lanes
        self._moves: dict[Hashable, Kernel] = {}  # `Move.content` -> its kernel
        super().__init__({name: family(isa, mode, choices) for name, family in FAMILIES.items()})

    def plain(self, group: Group) -> PlainKernel:
        if group.core.name in REAL_PRODUCTS:
            return float_kernel(self.isa, group, self._choices)
        if group.core.name == "qnn.softmax":
            return softmax_kernel(self.isa, self.mode, group)
        return plain_kernel(self.isa, self.mode, group)

    def check_product(self, group: Group) -> None:
        numbers_of(self.isa, self.mode, group)

    def product(self, group: Group, lhs: Matrices, rhs: Matrices, out: Matrices, *, transposed: bool) -> Kernel:
        return product(self.isa, self.mode, group, lhs, rhs, out, transposed=transposed)

    def lstm(self, step: LstmStep, steps: int) -> LstmKernel:
        numbers = recurrence(self.mode, step, steps)
        return LstmKernel(lstm(self.isa, numbers), numbers.outputs)

    def check_row_operator(self, name: str, call: relax.Expr, operation: Operation | None) -> None:
        check(self.mode, name, call, operation)

    def rows(
        self, region: Region, sources: Sequence[Access], outputs: Sequence[Output], *, has_length: bool = False
    ) -> RowsKernel:
        return rows(self.isa, self.mode, region, sources, outputs, has_length=has_length)

    def part_tables(self, join: Operation) -> list[Array | None]:
        return [None if is_identity(table) else table for table in part_tables(self.mode, join)]

    def move(self, made: Move) -> Kernel:
        if made.content not in self._moves:
            self._moves[made.content] = move(self.isa, made)
        return self._moves[made.content]

    def pack(
        self,
        destination: Image,
        dtype: str,
        fill: int,
        quantize: Operation | None = None,
        *,
        channels_first: bool = False,
    ) -> Kernel:
        parallel = worth_sharing(self.isa, destination.own_bytes / self.isa.bytes)
        quantization = None if quantize is None else quantization_of(self.mode, quantize)
        return reorder.pack(
            self.isa, destination, dtype, fill, quantization, channels_first=channels_first, parallel=parallel
        )

    def check_quantize(self, operation: Operation) -> None:
        quantization_of(self.mode, operation)

    def unpack(self, source: Image, dtype: str, *, channels_first: bool = False) -> Kernel:
        parallel = worth_sharing(self.isa, source.own_bytes / self.isa.bytes)
        return reorder.unpack(self.isa, source, dtype, channels_first=channels_first, parallel=parallel)
