"""Copies a product's second matrix to the layout of weights for `Isa.dot`: for each group of rows, blocks of columns.

A *group* is `Isa.group` consecutive rows, and a *block* is `Isa.lanes` columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, Register, at_most, bits, load, splat
from service.compiler.kernels.vector.isa import PIXELS, Isa


@dataclass(frozen=True)
class Source:
    """A matrix in a byte buffer. Its rows consist of runs of `Isa.lanes` elements.

    Attributes:
        start: the offset of the matrix's first byte.
        row: the stride from one row to the next.
        block: the stride from one run to the next.
        dtype: the type of the elements.
    """

    buffer: Buffer
    start: Expr
    row: int
    block: int
    dtype: str

    def load(self, row: Expr, run: Expr, lanes: int) -> Expr:
        return load(self.buffer, self.start + row * self.row + run * self.block, lanes)

    def group(self, number: Expr, isa: Isa) -> Expr:
        """Returns the offset of group number `number` in a row."""
        if self.block == isa.lanes:
            return number * isa.group
        of_run = isa.lanes // isa.group
        return number // of_run * self.block + number % of_run * isa.group


class ColumnLayout:
    """Writes columns of a matrix to memory in the layout for `Isa.dot`.

    Attributes:
        memory: the destination, `[groups, blocks]` vectors. Each lane contains a group of signed bytes of one column.
            Rows after the last one are zeros.
        depth: the number of rows of the matrix.
        used: the number of rows to write. An expression is at least 1 and at most `depth`.
    """

    def __init__(
        self, program: Program, isa: Isa, memory: Buffer, blocks: int, depth: int, used: Expr | None = None
    ) -> None:
        self.program, self.isa, self.memory, self.blocks, self.depth = program, isa, memory, blocks, depth
        self.used: Expr = depth if used is None else used
        self._vector = f"uint8x{isa.bytes}"

    def rows(self, source: Source, block: Expr) -> list[Register]:
        """Writes `blocks` blocks of columns, from block number `block` on, of a matrix that is not transposed.

        Returns:
            For each block, a vector with the sum of each column.
        """
        program, isa, lanes = self.program, self.isa, self.isa.lanes
        sums = self._sums()
        order = [row * lanes + lane for lane in range(lanes) for row in range(isa.group)]

        def group_of(group: Expr, valid: Expr | None = None) -> None:
            for index in range(self.blocks):
                numbers = [at_most(group * isa.group + row, self.depth - 1) for row in range(isa.group)]
                rows = [source.load(number, block + index, lanes) for number in numbers]
                joined = tirx.Shuffle(rows, [tirx.const(at, "int32") for at in order])
                self._store(source, joined, group, index, sums, valid)

        whole, rest = program.bind(self.used // isa.group), program.bind(self.used % isa.group)
        with program.loop(whole, "group") as group:
            group_of(group)
        with program.when(rest > 0):
            group_of(whole, rest)
        return sums

    def transposed(self, source: Source, column: Expr, columns: int) -> list[Register]:
        """Writes `blocks` blocks of columns, from column number `column` on, of a matrix that is stored transposed.

        The stored matrix has `columns` rows. The last column is repeated to fill the blocks.

        Returns:
            For each block, a vector with the sum of each column.
        """
        program, isa, lanes = self.program, self.isa, self.isa.lanes
        sums, of_run = self._sums(), lanes // isa.group
        across = [  # the lane order that interleaves four stored rows group by group
            row * lanes + group * isa.group + byte
            for group in range(of_run)
            for row in range(PIXELS)
            for byte in range(isa.group)
        ]

        def run_of(run: Expr, depth: Expr) -> None:
            for index in range(self.blocks):
                fours = []
                for first in range(0, lanes, PIXELS):
                    numbers = [at_most(column + (index * lanes + first + row), columns - 1) for row in range(PIXELS)]
                    four = [source.load(number, run, lanes) for number in numbers]
                    joined = tirx.Shuffle(four, [tirx.const(at, "int32") for at in across])
                    fours.append(program.bind(bits(self._vector, joined), self._vector))
                for group in range(-(-depth // isa.group) if isinstance(depth, int) else of_run):
                    width = PIXELS * isa.group
                    order = [
                        four * isa.bytes + group * width + byte for four in range(len(fours)) for byte in range(width)
                    ]
                    joined = tirx.Shuffle(fours, [tirx.const(at, "int32") for at in order])
                    self._store(source, joined, run * of_run + group, index, sums, depth - group * isa.group)

        whole, rest = program.bind(self.used // lanes), program.bind(self.used % lanes)
        with program.loop(whole, "run") as run:
            run_of(run, lanes)
        with program.when(rest > 0):
            run_of(whole, rest)
        return sums

    def _store(
        self,
        source: Source,
        vector: Expr,
        group: Expr,
        position: int,
        sums: Sequence[Register],
        valid: Expr | None = None,
    ) -> None:
        """Stores a vector, and adds its bytes to the sums of the columns.

        Args:
            valid: the number of rows that remain, from this group on. Bytes of further rows are set to 0. None if all
                rows of the group are used.
        """
        program, isa = self.program, self.isa
        vector = bits(self._vector, vector)
        if source.dtype == "uint8":
            vector = flip_sign(vector, isa.bytes)
        if valid is not None and not (isinstance(valid, int) and valid >= isa.group):
            mask = splat(first_bytes(valid), isa.lanes)
            vector = bits(self._vector, bits(f"int32x{isa.lanes}", vector) & mask)
        vector = program.bind(vector, self._vector)
        program.store(self.memory, (group * self.blocks + position) * isa.bytes, vector, isa.bytes)
        one = int.from_bytes(bytes([isa.operand_zero_point + 1]) * 4, "little", signed=True)
        ones = isa.operand(program, splat(tirx.const(one, "int32"), isa.lanes))
        sums[position].value = isa.dot(sums[position].value, ones, isa.computed_weights(program, vector))

    def _sums(self) -> list[Register]:
        registers = [self.program.register("int32", self.isa.lanes) for _ in range(self.blocks)]
        for register in registers:
            register.value = splat(tirx.const(0, "int32"), self.isa.lanes)
        return registers


def first_bytes(count: Expr) -> Expr:
    """Returns an int32 whose first `count` bytes are 255, and whose other bytes are 0.

    A count below 0 has the effect of 0, and one above 4 the effect of 4.
    """
    if isinstance(count, int):
        mask = bytes([255] * count).ljust(4, b"\0")[:4]
        return tirx.const(int.from_bytes(mask, "little", signed=True), "int32")
    bits_set = tirx.Cast("int64", tirx.max(tirx.min(count, 4), 0) * 8)
    return tirx.Cast("int32", (tirx.const(1, "int64") << bits_set) - tirx.const(1, "int64"))


def flip_sign(vector: Expr, lanes: int) -> Expr:
    """Converts between stored bytes and signed bytes, by flipping the highest bit of each."""
    highest = tirx.const(128, "uint8")
    return vector ^ (splat(highest, lanes) if lanes > 1 else highest)
