"""Products of two 8-bit matrices that are both computed at run time, as in attention: `qnn.matmul`, requantized or
dequantized.

An iteration of the parallel loop computes some blocks of columns of the product. The iteration first copies these
columns of the second matrix to memory of its own, which stays in L1 cache, in the layout for `Isa.dot`. Then it
multiplies rows of the first matrix by these columns. To subtract both zero points, it also needs the sum of each row of
the first matrix and of each column of the second.

Matrices are in contiguous tensors or in images, and the second matrix may be stored transposed. If rows do not consist
of whole vectors, the rows are copied first, or the elements beyond their end are multiplied by zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.epilogue import WideEpilogue, load_channels
from service.compiler.kernels.group import Group, Length
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.matrices import Matrices
from service.compiler.kernels.program import (
    Buffer,
    Expr,
    Program,
    Register,
    at_most,
    bits,
    divided,
    index,
    load,
    shuffle,
    splat,
)
from service.compiler.kernels.simd.products.layout import ColumnLayout, Source, first_bytes, flip_sign
from service.compiler.kernels.simd.products.numbers import Numbers, numbers_of
from service.compiler.kernels.vector.isa import PIXELS, Isa, worth_sharing
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.kernels.walk import map_bytes
from service.compiler.qnn.numerics import Mode
from service.core.words import plural

_MOST_ROWS = 16
_MOST_BLOCKS = 8
_FEWEST_ITEMS = 8  # a product with many rows is divided into at least this many iterations
_ROWS_OF_AN_ITEM = 64  # an iteration computes at least this many rows, because each iteration copies the columns


def product(
    isa: Isa, mode: Mode, group: Group, lhs: Matrices, rhs: Matrices, out: Matrices, *, transposed: bool
) -> Kernel:
    """Returns the kernel for a `qnn.matmul` and its `qnn.requantize` or `qnn.dequantize`.

    Args:
        group: a group that `numbers_of` accepts.
        lhs: `[…, M, K]`.
        rhs: `[…, K, N]`, or `[…, N, K]` if `transposed`.
        out: `[…, M, N]`; not in an image with a halo.
    """
    return _Product(isa, numbers_of(isa, mode, group), lhs, rhs, out, transposed, group.length).kernel()


@dataclass(frozen=True)
class _Tile:
    rows: int
    blocks: int

    @staticmethod
    def of(isa: Isa, height: int, width: int, depth: int, length: Length | None) -> _Tile:
        """Returns the tile with the fewest estimated cycles among those whose accumulators fit the registers. If
        something depends on the length, returns the tile that is at most a little slower than the best one for any
        length.
        """
        blocks, excess = -(-width // isa.lanes), dict[_Tile, float]()
        fits = [
            _Tile(rows, deep)
            for deep in range(1, min(_MOST_BLOCKS, blocks) + 1)
            for rows in range(1, min(_MOST_ROWS, height) + 1)
            if (rows + isa.weight_vectors) * deep + isa.weight_vectors + 1 < isa.registers
        ]
        for rows, columns, products in (
            [(height, width, depth)] if length is None else length.shares(height, width, depth)
        ):
            sizes = rows, -(-columns // isa.lanes), -(-products // isa.group)
            own = {tile: tile._cycles(isa, *sizes) for tile in fits}
            excess = {tile: max(excess.get(tile, 1.0), own[tile] / min(own.values())) for tile in fits}
        return min(fits, key=lambda tile: excess[tile])

    def _cycles(self, isa: Isa, height: int, blocks: int, groups: int) -> float:
        rates = isa.rates
        work = self.rows * (self.blocks * rates.dot + rates.operand)
        loads = (self.rows + self.blocks) * rates.load
        step = max(work, loads, rates.latency) + rates.overlap * min(work, loads)
        quads = -(-self.rows // PIXELS) * PIXELS if self.rows >= PIXELS else 2 * self.rows
        own = groups * step + quads * self.blocks * rates.epilogue.float_scale + rates.tile
        return -(-height // self.rows) * -(-blocks // self.blocks) * own


class _Product:
    def __init__(
        self,
        isa: Isa,
        numbers: Numbers,
        lhs: Matrices,
        rhs: Matrices,
        out: Matrices,
        transposed: bool,
        length: Length | None,
    ) -> None:
        self.isa, self.numbers, self.epilogue, self.transposed = isa, numbers, numbers.epilogue, transposed
        self.lhs, self.rhs, self.out, self.length = lhs, rhs, out, length
        self.height, self.depth, self.width = lhs.rows, lhs.columns, out.columns
        self.groups, self.blocks = -(-self.depth // isa.group), -(-self.width // isa.lanes)
        self.tile = _Tile.of(isa, self.height, self.width, self.depth, length)
        self.batch, self.parts = math.prod(out.batch), -(-self.blocks // self.tile.blocks)
        few = -(-_FEWEST_ITEMS // (self.batch * self.parts))
        self.shares = max(1, min(few, self.height // _ROWS_OF_AN_ITEM))
        self.own_rows = -(-self.height // self.shares)
        self.tile = _Tile(min(self.tile.rows, self.own_rows), self.tile.blocks)

    def kernel(self) -> Kernel:
        program, isa = Program(), self.isa
        self.program, self.lanes = program, Lanes(program, isa)
        (lhs, rhs), epilogue = self.numbers.zero_points, self.epilogue
        lhs -= isa.operand_zero_point
        constants = np.array([lhs * rhs, lhs, rhs], np.int32), *epilogue.constants
        sources = [
            program.parameter(name, matrices.dtype, matrices.size)
            for name, matrices in (("lhs", self.lhs), ("rhs", self.rhs))
        ]
        number = None if self.length is None else program.parameter("length", "int32", 1)
        points, *numbers = (
            program.parameter(f"constant_{at}", str(array.dtype), array.size) for at, array in enumerate(constants)
        )
        count = len(epilogue.requantization.arrays)
        self.factors, self.parameters = numbers[:count], numbers[count:]
        self.written = program.parameter("destination", self.out.dtype, self.out.size)
        macs = self.batch * self.height * self.groups * isa.group * self.blocks * isa.lanes
        parallel = worth_sharing(isa, macs / isa.bytes * isa.rates.dot)
        items = self.batch * self.parts * self.shares
        self.used_depth, self.used_rows, self.used_columns = self._used(number)
        with program.loop(items, "item", parallel=parallel and items > 1) as item:
            self.both, self.lhs_point, self.rhs_point = (
                self.lanes.keep(splat(load(points, at, 1), isa.lanes)) for at in range(3)
            )
            self.both = self.lanes.keep(self.both * splat(index(self.used_depth), isa.lanes))
            self.channels = load_channels(self.lanes, epilogue.requantization, self.factors, 0)
            self._item(item, *sources)
        facts = {"tile": f"{plural(self.tile.rows, 'row')}, {plural(self.tile.blocks, 'block')}"}
        return Kernel("product", program.function(), constants, self.out.size, facts)

    def _used(self, number: Buffer | None) -> tuple[Expr, Expr, Expr]:
        """Returns the number of products of each sum, and the number of rows and columns of the result to compute."""
        if number is None or self.length is None:
            return self.depth, self.height, self.width
        own = load(number, 0, 1)
        of = self.length
        return (
            self.program.bind(at_most(own, self.depth)) if of.depth else self.depth,
            self.program.bind(at_most(own, self.height)) if of.rows else self.height,
            self.program.bind(at_most(own, self.width)) if of.columns else self.width,
        )

    def _item(self, item: Expr, lhs: Buffer, rhs: Buffer) -> None:
        """Computes some blocks of columns of some rows."""
        program, isa = self.program, self.isa
        number, rest = program.bind(item // (self.parts * self.shares)), item % (self.parts * self.shares)
        block = program.bind(at_most(rest // self.shares * self.tile.blocks, self.blocks - self.tile.blocks))
        row = program.bind(at_most(rest % self.shares * self.own_rows, self.height - self.own_rows))
        positions = self._places(number)
        with program.when(index(block * isa.lanes) < self.used_columns if self._bounds_columns else True):
            self._blocks(block, row, positions, lhs, rhs)

    @property
    def _bounds_columns(self) -> bool:
        return not isinstance(self.used_columns, int)

    def _blocks(self, block: Expr, row: Expr, positions: list[Expr], lhs: Buffer, rhs: Buffer) -> None:
        """Computes an iteration's blocks of columns, from block number `block` and row `row` on."""
        program, isa = self.program, self.isa
        self.rows_here: Expr = self.own_rows
        if not isinstance(self.used_rows, int):
            self.rows_here = program.bind(at_most(self.used_rows - row, self.own_rows))
        reads = self.rhs.rows, self.own_rows
        used = self.used_columns if self.transposed else self.used_depth, self.rows_here
        copied = self._uneven(self.rhs), self._uneven(self.lhs)
        laid_out = self.groups * self.tile.blocks * isa.bytes
        sizes = (
            laid_out,
            max(self.own_rows, PIXELS) * isa.lanes,
            *map(self._copy_bytes, (self.rhs, self.lhs), reads, copied),
        )
        self.memory = program.workspace(1 << (sum(sizes) + isa.bytes - 1).bit_length())
        sums_at, rhs_at, lhs_at = (sum(sizes[:position]) for position in (1, 2, 3))
        first_row = program.bind(self.lhs.start(positions) + row * self.lhs.row)
        left = self._source(lhs, self.lhs, first_row, used[1], lhs_at, copied[1])
        right = self._source(rhs, self.rhs, program.bind(self.rhs.start(positions)), used[0], rhs_at, copied[0])
        layout = ColumnLayout(program, isa, self.memory, self.tile.blocks, self.depth, self.used_depth)
        columns = program.bind(block * isa.lanes)
        sums = layout.transposed(right, columns, self.rhs.rows) if self.transposed else layout.rows(right, block)
        for register in sums:
            register.value = self.both - register.value * self.lhs_point
        if self.numbers.zero_points[1]:
            self._sum_rows(left, sums_at)
        to = program.bind(self.out.start(positions) + row * self.out.row)
        with program.loop(divided(self.rows_here, self.tile.rows), "tile") as tile:
            self._tile(
                left,
                program.bind(at_most(tile * self.tile.rows, self.own_rows - self.tile.rows)),
                sums_at,
                sums,
                to,
                block,
            )

    def _places(self, number: Expr) -> list[Expr]:
        positions: list[Expr] = []
        for extent in reversed(self.out.batch):
            positions.append(self.program.bind(number % extent) if extent > 1 else 0)
            number = number // extent if extent > 1 else number
        return positions[::-1]

    # --- operands that must be copied before they are read ---

    def _uneven(self, matrices: Matrices) -> bool:
        """Returns true if the rows of a matrix must be copied before they are multiplied.

        The reason is that vectors would read beyond the rows, or that the first matrix has signed bytes.
        """
        if matrices.image is not None:
            return False
        return bool(matrices.columns % self.isa.lanes) or (matrices is self.lhs and matrices.dtype == "int8")

    def _copy_bytes(self, matrices: Matrices, rows: int, copied: bool) -> int:
        return rows * self._padded(matrices) if copied else 0

    def _padded(self, matrices: Matrices) -> int:
        return -(-matrices.columns // self.isa.lanes) * self.isa.lanes

    def _source(self, buffer: Buffer, matrices: Matrices, start: Expr, rows: Expr, at: int, copied: bool) -> Source:
        """Returns the matrix at offset `start`. If `copied`, this first copies `rows` rows of it to offset `at` of the
        memory.
        """
        if not copied:
            return Source(buffer, start, matrices.row, matrices.block, matrices.dtype)
        width, function = self._padded(matrices), partial(_unsigned, matrices.dtype)
        with self.program.loop(rows, "line") as line:
            source = buffer, self.program.bind(start + line * matrices.row)
            target = self.memory, self.program.bind(line * width + at)
            map_bytes(self.program, self.isa.bytes, [source], target, matrices.columns, function)
        return Source(self.memory, at, width, self.isa.lanes, "uint8")

    # --- products ---

    def _sum_rows(self, left: Source, at: int) -> None:
        """Stores, for each row of the first matrix, its sum times the second matrix's zero point, from byte `at` on."""
        program, isa = self.program, self.isa
        together = min(PIXELS, self.own_rows)
        whole, rest = program.bind(self.used_depth // isa.lanes), program.bind(self.used_depth % isa.lanes)
        with program.loop(divided(self.rows_here, together), "quad") as quad:
            row = program.bind(at_most(quad * together, self.own_rows - together))
            sums = self._register(self.lanes.const(0))

            def add(run: Expr, columns: Expr) -> None:
                rows = [left.load(row + min(line, together - 1), run, isa.lanes) for line in range(PIXELS)]
                joined = tirx.Shuffle(rows, [tirx.const(byte, "int32") for byte in range(isa.bytes)])
                if left.row == isa.lanes and together == PIXELS:
                    joined = left.load(row, run, isa.bytes)
                operand = isa.operand(program, program.bind(joined, f"uint8x{isa.bytes}"))
                sums.value = isa.dot(sums.value, operand, isa.computed_weights(program, self._ones(columns)))

            with program.loop(whole, "run") as run:
                add(run, isa.lanes)
            with program.when(rest > 0):
                add(whole, rest)
            distance = 1
            while distance < isa.lanes // PIXELS:  # adds the partial sums of a row, which are in neighboring lanes
                order = [lane ^ distance for lane in range(isa.lanes)]
                sums.value = sums.value + shuffle(self.lanes.keep(sums.value), order)
                distance *= 2
            stored = bits(f"uint8x{isa.bytes}", sums.value * self.rhs_point)
            program.store(self.memory, program.bind(row * isa.lanes + at), stored, isa.bytes)

    def _ones(self, columns: Expr) -> Expr:
        """Returns a vector for `PIXELS` rows, with the byte 1 for the first `columns` columns of a run, and 0 for the
        others.
        """
        isa, ones = self.isa, tirx.const(0x01010101, "int32")
        words = [first_bytes(columns - 4 * word) & ones for word in range(isa.lanes // 4)] * PIXELS
        joined = tirx.Shuffle(words, [tirx.const(lane, "int32") for lane in range(isa.lanes)])
        return self.program.bind(bits(f"uint8x{isa.bytes}", joined), f"uint8x{isa.bytes}")

    def _tile(self, left: Source, row: Expr, sums_at: int, starts: Sequence[Register], to: Expr, block: Expr) -> None:
        """Multiplies some rows of the first matrix by this iteration's columns."""
        program, isa = self.program, self.isa
        totals = []
        for line in range(self.tile.rows):
            values = [start.value for start in starts]
            if self.numbers.zero_points[1]:
                own = bits("int32", load(self.memory, (row + line) * isa.lanes + sums_at, 4))
                own = self.lanes.keep(splat(own, isa.lanes))
                values = [value - own for value in values]
            totals.append([self._register(value) for value in values])
        base = program.bind(left.start + row * left.row)
        with program.loop(divided(self.used_depth, isa.group), "group") as group:
            weights = [
                isa.computed_weights(
                    program, load(self.memory, (group * self.tile.blocks + number) * isa.bytes, isa.bytes)
                )
                for number in range(self.tile.blocks)
            ]
            at = program.bind(base + left.group(group, isa))
            operands = isa.operands(program, left.buffer, at, [line * left.row for line in range(len(totals))])
            for registers, operand in zip(totals, operands, strict=True):
                for register, factors in zip(registers, weights, strict=True):
                    register.value = isa.dot(register.value, operand, factors)
        for number in range(self.tile.blocks):
            column = [registers[number] for registers in totals]
            position = program.bind(to + row * self.out.row + (block + number) * self.out.block)
            self._store(column, position, block + number)

    def _store(self, totals: Sequence[Register], at: Expr, block: Expr) -> None:
        """Applies the epilogue to some rows of one block, and stores them."""
        program, isa, lanes = self.program, self.isa, self.isa.lanes
        whole, rest = self.width // lanes, self.width % lanes if self.out.image is None else 0
        scale = self.epilogue.requantization
        values = [scale.express(self.lanes, total.value, self.channels) for total in totals]
        shown = partial(_to_tensor_bytes, self.out.dtype)

        def store(line: int, row: Expr) -> None:
            to, row = at + line * self.out.row, program.bind(shown(row, lanes), f"{self.out.dtype}x{lanes}")
            if rest:
                with program.when(block == whole):
                    program.store_first(self.written, to, row, lanes, rest)
            if whole or not rest:
                with program.when(block < whole) if rest else program.when(True):
                    program.store(self.written, to, row, lanes)

        if isinstance(self.epilogue, WideEpilogue):
            for line, value in enumerate(values):
                store(line, value)
            return
        (parameters,) = self.parameters
        if len(values) < PIXELS:
            for line, value in enumerate(values):
                store(line, self.epilogue.narrow(self.lanes, value, parameters))
            return
        for first in [*range(0, len(values) - PIXELS, PIXELS), len(values) - PIXELS]:
            a, b, c, d = values[first : first + PIXELS]
            packed = self.epilogue.pack(self.lanes, (a, b, c, d), parameters)
            if self.out.row == lanes and not rest:
                program.store(self.written, at + first * lanes, shown(packed, isa.bytes), isa.bytes)
                continue
            packed = program.bind(packed, f"uint8x{isa.bytes}")
            for line in range(PIXELS):
                store(first + line, shuffle(packed, range(line * lanes, (line + 1) * lanes)))

    def _register(self, value: Expr) -> Register:
        register = self.program.register("int32", self.isa.lanes)
        register.value = value
        return register


def _unsigned(dtype: str, vector: Expr, lanes: int) -> Expr:
    """Converts bytes of a tensor to stored bytes."""
    return flip_sign(bits(f"uint8x{lanes}" if lanes > 1 else "uint8", vector), lanes) if BIAS[dtype] else vector


def _to_tensor_bytes(dtype: str, vector: Expr, lanes: int) -> Expr:
    """Converts stored bytes to bytes of a tensor."""
    return bits(f"int8x{lanes}", flip_sign(vector, lanes)) if BIAS.get(dtype) else vector
