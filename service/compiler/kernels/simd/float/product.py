"""Float products: matrix products, dense layers and convolutions (`qnn.real_matmul`, `qnn.real_conv2d`).

The sums of a tile, rows (or output pixels of a convolution) by vectors of columns, stay in registers until they are
complete. Products are added in the order that the operators define. Tiles at an edge overlap their neighbors, and the
last vector of columns overlaps the previous one. The columns of one tile are a *part*. As many parts as fit the cache
are a *group of parts*: a tile of rows is multiplied by all of them in succession.

The right operand of a part is laid out as a *panel*, in the order in which the kernel loads it. Constant weights are
stored as panels. Other right operands are copied to panels in memory of the thread, or are read in place if there is
only one tile of rows. Weights of few bits (`blocks`) are decoded into panels, or in registers. The factors are float32
values or pairs of bfloat16 values (`factors`). Computed operands are first converted to pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import tirx

from service.compiler.kernels.group import Length
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.program import Buffer, Expr, Program, Register, at_most, divided, index, load, splat
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.simd.float.blocks import Blocked, BlockPanels
from service.compiler.kernels.simd.float.factors import SINGLES, Factors
from service.compiler.kernels.simd.float.memory import Padded, pad, transposed
from service.compiler.kernels.simd.float.tiles import FAR_BYTES, Geometry, cycles
from service.compiler.kernels.vector.isa import Isa, worth_sharing
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array
from service.core.words import plural

_SHARE = 4096  # the number of elements that one iteration converts

# Takes (index of a part in its group, first columns of its vectors, index of a step, index of a vector), and returns
# that vector of weights.
Weights = Callable[[Expr, list[Expr], Expr, int], Expr]


@dataclass(frozen=True)
class Operands:
    """The operands of a product.

    Attributes:
        lhs, rhs, out: the number of elements of each operand; `rhs` is 0 if there are `weights`.
        weights: constant weights, `[matrices, depth, columns]`; or one matrix of weights in blocks.
        bias: `[matrices, columns]`.
        padded: the border to add to `lhs` before it is read.
        factors: the type of the factors.
        length: what depends on the length of the input, if `rhs` is not 0. The kernel then has another parameter after
            `rhs`.
    """

    lhs: int
    rhs: int
    out: int
    weights: Array | Blocked | None = None
    bias: Array | None = None
    padded: Padded | None = None
    factors: Factors = SINGLES
    length: Length | None = None


def float_product(isa: Isa, geometry: Geometry, operands: Operands, tile: Tile) -> Kernel:
    return _Product(isa, geometry, operands, tile).kernel()


class _Product:
    def __init__(self, isa: Isa, geometry: Geometry, operands: Operands, tile: Tile) -> None:
        self.isa, self.geometry, self.operands, self.tile = isa, geometry, operands, tile
        self.factors = operands.factors
        last = max(geometry.columns - isa.lanes, 0)
        self.starts = [min(at, last) for at in range(0, geometry.columns, isa.lanes)]
        self.parts, self.tiles = geometry.parts(isa, tile), geometry.tiles(tile)
        self.constants: list[Array] = []
        firsts = [min(part * tile.blocks, len(self.starts) - tile.blocks) for part in range(self.parts)]
        own = [self.starts[first : first + tile.blocks] for first in firsts]
        self.panels: BlockPanels | None = None
        if isinstance(operands.weights, Blocked):
            self.panels = BlockPanels(operands.weights, own, isa.lanes)
            self.constants += self.panels.constants
        elif operands.weights is not None:
            self.constants.append(self._pack_weights(operands.weights, own))
        self.laid_out = operands.weights is not None and self.panels is None
        if operands.bias is not None:
            width = max(isa.lanes, geometry.columns)
            filled = np.zeros((len(operands.bias), width), np.float32)
            filled[:, : geometry.columns] = operands.bias
            self.constants.append(filled.reshape(-1))
        # If only one tile of rows reads the right operand, the operand is read in place.
        steps = geometry.rhs_steps
        single, whole = self.factors.size == 1, geometry.columns >= isa.lanes
        self.in_place = self.tiles == 1 and single and whole and steps is not None and steps[1] == 1
        self.panel = geometry.steps * tile.blocks * isa.lanes
        self.group = geometry.parts_at_once(isa, tile, constant=self.laid_out)
        self.groups = -(-self.parts // self.group)
        # The left operand's rows for the next tile follow those for this tile. The rows for the next tile are
        # prefetched if the operand does not fit the cache.
        rows_bytes = geometry.element_bytes * geometry.grid[1] * geometry.run
        self.prefetched = geometry.lhs_steps == (0, geometry.run) and rows_bytes > FAR_BYTES

    def _pack_weights(self, weights: Array, parts: list[list[int]]) -> Array:
        """Returns the weights as `[matrix, part, step, vector, lane]`. The last part and the last vector overlap."""
        lanes, packed = self.isa.lanes, self.factors.packed(weights, self.geometry.run)
        filled = np.zeros((*packed.shape[:2], max(lanes, packed.shape[2])), packed.dtype)
        filled[:, :, : packed.shape[2]] = packed
        vectors = [np.stack([filled[:, :, start : start + lanes] for start in part], axis=2) for part in parts]
        return np.stack(vectors, axis=1).reshape(-1)

    def kernel(self) -> Kernel:
        program = self.program = Program()
        self.lanes = Lanes(program, self.isa)
        geometry, operands, constant = self.geometry, self.operands, self.laid_out
        self.lhs = program.parameter("lhs", "float32", operands.lhs)
        self.rhs = None if operands.weights is not None else program.parameter("rhs", "float32", operands.rhs)
        number = None if operands.length is None else program.parameter("length", "int32", 1)
        self.buffers = [
            program.parameter(f"constant_{number}", str(array.dtype), array.size)
            for number, array in enumerate(self.constants)
        ]
        self.written = program.parameter("destination", "float32", operands.out)
        parallel = worth_sharing(self.isa, cycles(self.isa, geometry, self.tile))
        if operands.padded is not None:
            memory = program.workspace(operands.padded.size, self.factors.stored)
            pad(self.lanes, self.factors, self.lhs, memory, operands.padded, parallel=parallel)
            self.lhs = memory
        else:
            self.lhs = self._converted(self.lhs, operands.lhs, parallel=parallel)
        if self.rhs is not None:
            self.rhs = self._converted(self.rhs, operands.rhs, parallel=parallel)
        self.used_depth, self.used_parts = self._used(number)
        # A thread that has copied or decoded the right operand uses the copy for all tiles of rows.
        rows = self.tiles if constant else 1
        with program.loop(geometry.images * self.groups * rows, "item", parallel=parallel) as item:
            of_images, tile = program.bind(item // rows), item % rows
            lhs, rhs, out = self._offsets(program.bind(of_images // self.groups))
            first = program.bind(of_images % self.groups * self.group) if self.groups > 1 else 0
            self.count = program.bind(at_most(self.parts - first, self.group))
            if not isinstance(self.used_parts, int):
                self.count = program.bind(tirx.min(self.used_parts - first, index(self.count)))
            if constant:
                weights = self._from_panel(self.buffers[0], program.bind((rhs * self.parts + first) * self.panel))
                self._tiles(lhs, out, rhs, first, program.bind(tile), weights)
            else:
                others = self._computed(rhs, first)
                with program.loop(self.tiles, "tile") as own:
                    self._tiles(lhs, out, rhs, first, own, others)
        facts = {"tile": f"{self.tile.rows}x{self.tile.columns} rows, {plural(self.tile.blocks, 'vector')}"}
        facts |= self.factors.facts
        return Kernel("float_product", program.function(), tuple(self.constants), 4 * operands.out, facts)

    def _used(self, number: Buffer | None) -> tuple[Expr, Expr]:
        """Returns the number of products of each sum, and the number of parts to compute."""
        geometry, length, bind = self.geometry, self.operands.length, self.program.bind
        depth, parts = geometry.depth, self.parts
        if number is None or length is None:
            return depth, parts
        columns = bind(at_most(load(number, 0, 1), geometry.columns))
        return (
            bind(at_most(load(number, 0, 1), depth)) if length.depth else depth,
            bind(divided(columns, self.tile.blocks * self.isa.lanes)) if length.columns else parts,
        )

    def _converted(self, source: Buffer, size: int, *, parallel: bool) -> Buffer:
        """Returns a buffer with the operand, converted to the type of `factors`."""
        if self.factors.stored == str(source.dtype):
            return source
        memory, share = self.program.workspace(size, self.factors.stored), min(size, _SHARE)
        with self.program.loop(-(-size // share), "share", parallel=parallel) as at:
            first = self.program.bind(at_most(at * share, size - share))
            self.factors.copy(self.lanes, (source, first), (memory, first), share)
        return memory

    def _offsets(self, image: Expr) -> tuple[Expr, Expr, Expr]:
        """Returns the offset of image number `image` in each operand. An image is one of the independent products."""
        totals: list[Expr] = list(self.geometry.starts)
        for each in reversed(self.geometry.outer):
            position = image % each.extent if each.extent > 1 else 0
            image = self.program.bind(image // each.extent) if each.extent > 1 else image
            totals = [
                total + position * step for total, step in zip(totals, (each.lhs, each.rhs, each.out), strict=True)
            ]
        lhs, rhs, out = (self.program.bind(total) for total in totals)
        return lhs, rhs, out

    def _columns(self, part: Expr) -> list[Expr]:
        """Returns the first column of each vector of a part."""
        first = self.program.bind(at_most(part * self.tile.blocks, len(self.starts) - self.tile.blocks))
        last = self.starts[-1]
        return [self.program.bind(at_most((first + block) * self.isa.lanes, last)) for block in range(self.tile.blocks)]

    # --- the right operand ---

    def _from_panel(self, buffer: Buffer, panel: Expr) -> Weights:
        lanes, blocks = self.isa.lanes, self.tile.blocks

        def vector(part: Expr, columns: list[Expr], product: Expr, block: int) -> Expr:
            return load(buffer, panel + part * self.panel + product * (blocks * lanes) + block * lanes, lanes)

        return vector

    def _computed(self, rhs: Expr, first: Expr) -> Weights | None:
        """Prepares the right operand for a group of parts. Returns None if weights are decoded while they are
        multiplied.
        """
        if self.panels is not None:
            return None if self.tiles == 1 else self._decoded(self.panels, first)
        return self._in_place(rhs) if self.in_place else self._laid_out(rhs, first)

    def _decoded(self, panels: BlockPanels, first: Expr) -> Weights:
        program, lanes = self.program, self.isa.lanes
        memory = program.workspace(self.group * self.panel, "float32")
        with program.loop(self.count, "part") as part:
            start = program.bind(part * self.panel)

            def keep(product: Expr, vectors: list[Expr]) -> None:
                for block, vector in enumerate(vectors):
                    program.store(memory, start + (product * self.tile.blocks + block) * lanes, vector, lanes)

            panels.each(self.lanes, self.buffers[:3], program.bind(first + part), keep)
        return self._from_panel(memory, 0)

    def _in_place(self, rhs: Expr) -> Weights:
        (step, _), lanes = self.rhs_steps, self.isa.lanes
        return lambda part, columns, product, block: load(self.rhs, rhs + product * step + columns[block], lanes)

    @property
    def rhs_steps(self) -> tuple[int, int]:
        assert self.geometry.rhs_steps is not None
        return self.geometry.rhs_steps

    def _laid_out(self, rhs: Expr, first: Expr) -> Weights:
        """Copies the columns of a group of parts to panels in memory of this thread."""
        program, lanes = self.program, self.isa.lanes
        memory = program.workspace(self.group * self.panel, self.factors.group)
        geometry = self.geometry
        whole = min(geometry.columns, geometry.steps) >= lanes and geometry.depth % self.factors.size == 0
        whole = whole and (self.factors.size == 1 or isinstance(self.used_depth, int))
        with program.loop(self.count, "part") as part:
            for block, column in enumerate(self._columns(first + part)):
                to = program.bind(part * self.panel + block * lanes)
                if self.rhs_steps[1] == 1:
                    self._copied(rhs + column, memory, to)
                elif whole:
                    self._transpose_squares(program.bind(rhs + column * self.rhs_steps[1]), memory, to)
                else:
                    self._copy_single_columns(rhs + column * self.rhs_steps[1], memory, to)
        return self._from_panel(memory, 0)

    def _copied(self, rhs: Expr, memory: Buffer, to: Expr) -> None:
        program, width, row = self.program, self.isa.lanes, self.tile.blocks * self.isa.lanes
        for first, count, size in self._steps():
            with program.loop(count, "laid") as step:
                k = (first + step) * self.factors.size
                source = rhs + k * self.rhs_steps[0]
                vector = self.factors.across(
                    self.lanes, self.rhs, program.bind(source), self.rhs_steps[0], size, self.geometry.columns
                )
                program.store(memory, to + (first + step) * row, vector, width)

    def _copy_single_columns(self, rhs: Expr, memory: Buffer, to: Expr) -> None:
        """Copies one group (`factors`) of one column at a time. This is used if the matrix is too small to transpose
        squares.
        """
        program, row = self.program, self.tile.blocks * self.isa.lanes
        for first, count, size in self._steps():
            with (
                program.loop(count, "laid") as step,
                program.loop(min(self.isa.lanes, self.geometry.columns), "n") as n,
            ):
                k = (first + step) * self.factors.size
                group = self.factors.along(self.rhs, rhs + n * self.rhs_steps[1] + k, 1, size)
                program.store(memory, to + (first + step) * row + n, group, 1)

    def _steps(self) -> list[tuple[Expr, Expr, int]]:
        """Returns the steps of a run as (first step, number of equal steps, number of products in each of these
        steps).
        """
        size = self.factors.size
        if not isinstance(self.used_depth, int):
            whole = self.program.bind(self.used_depth // size)
            return [(0, whole, size), *([(whole, self.used_depth % size, 1)] if size > 1 else [])]
        whole, rest = divmod(self.geometry.run, size)
        return [each for each in ((0, whole, size), (whole, 1, rest)) if each[1] and each[2]]

    def _transpose_squares(self, rhs: Expr, memory: Buffer, to: Expr) -> None:
        """Copies columns of a transposed right operand, by transposing squares of `lanes` x `lanes` groups."""
        program, lanes, row = self.program, self.isa.lanes, self.tile.blocks * self.isa.lanes
        size, dtype = self.factors.size, self.factors.group
        steps = self.geometry.steps if isinstance(self.used_depth, int) else self.used_depth
        with program.loop(divided(steps, lanes), "square") as square:
            step = program.bind(at_most(square * lanes, self.geometry.steps - lanes))
            starts = [rhs + n * self.rhs_steps[1] + step * size for n in range(lanes)]
            vectors = [self.lanes.keep(self.factors.along(self.rhs, at, lanes, size), dtype) for at in starts]
            for number, vector in enumerate(transposed(self.lanes, vectors, dtype)):
                program.store(memory, to + (step + number) * row, vector, lanes)

    # --- a tile ---

    def _tiles(self, lhs: Expr, out: Expr, panel: Expr, first: Expr, tile: Expr, weights: Weights | None) -> None:
        """Computes a tile of rows for the columns of a group of parts."""
        program, (height, width), shape = self.program, self.geometry.grid, self.tile
        across = -(-width // shape.columns)
        y = program.bind(at_most(tile // across * shape.rows, height - shape.rows))
        x = program.bind(at_most(tile % across * shape.columns, width - shape.columns))
        starts = [
            program.bind(start + y * down + x * right)
            for start, (down, right) in ((lhs, self.geometry.lhs_steps), (out, self.geometry.out_steps))
        ]
        with program.loop(self.count, "part") as part:
            self._tile(starts[0], starts[1], panel, first, part, weights)

    def _tile(self, lhs: Expr, out: Expr, panel: Expr, first: Expr, part: Expr, weights: Weights | None) -> None:
        columns = self._columns(first + part)
        program, shape, (down, right) = self.program, self.tile, self.geometry.out_steps
        pixels = [(row, column) for row in range(shape.rows) for column in range(shape.columns)]
        totals = [[self._register() for _ in columns] for _ in pixels]
        if weights is not None:
            own = partial(weights, part, columns)
            self._add_up(lhs, pixels, totals, own)
        elif self.panels is not None:
            multiply = partial(self._multiply, lhs, pixels, totals)
            self.panels.each(self.lanes, self.buffers[:3], program.bind(first + part), multiply)
        biases = [self._bias(panel, column) for column in columns]
        for (row, column), registers in zip(pixels, totals, strict=True):
            for start, register, bias in zip(columns, registers, biases, strict=True):
                value = register.value if bias is None else register.value + bias
                position = program.bind(out + row * down + column * right + start)
                vector = self.lanes.keep(value, "float32")
                count = min(self.isa.lanes, self.geometry.columns)
                program.store_first(self.written, position, vector, self.isa.lanes, count)

    def _add_up(
        self,
        start: Expr,
        pixels: list[tuple[int, int]],
        totals: list[list[Register]],
        weights: Callable[[Expr, int], Expr],
    ) -> None:
        program, geometry = self.program, self.geometry
        (rows, row_step), (columns, column_step) = geometry.taps
        with program.loop(rows, "tap_row") as i, program.loop(columns, "tap") as j:
            tap = program.bind(start + i * row_step + j * column_step)
            first = program.bind((i * columns + j) * geometry.run_steps)
            for begin, count, size in self._steps():
                with program.loop(count, "k") as step:
                    k = begin + step
                    if self.prefetched:
                        program.prefetch(self.lhs, start + len(pixels) * (geometry.run + k * self.factors.size))
                    vectors = [
                        self.lanes.keep(weights(first + k, block), self.factors.group)
                        for block in range(self.tile.blocks)
                    ]
                    self._multiply(tap, pixels, totals, k * self.factors.size, vectors, size)

    def _multiply(
        self,
        start: Expr,
        pixels: list[tuple[int, int]],
        totals: list[list[Register]],
        product: Expr,
        vectors: list[Expr],
        size: int = 1,
    ) -> None:
        """Adds the products of one step to each sum of a tile.

        Args:
            product: the index of the step's first product in the run.
            vectors: the weights of the step, one vector for each vector of columns.
            size: the number of products of each sum.
        """
        (down, right), dtype = self.geometry.lhs_steps, self.factors.group
        for (row, column), registers in zip(pixels, totals, strict=True):
            position = start + row * down + column * right + product
            group = self.lanes.keep(splat(self.factors.along(self.lhs, position, 1, size), self.isa.lanes), dtype)
            for register, vector in zip(registers, vectors, strict=True):
                register.value = self.factors.add_products(self.lanes, register.value, group, vector)

    def _bias(self, panel: Expr, column: Expr) -> Expr | None:
        if self.operands.bias is None:
            return None
        width, lanes = max(self.isa.lanes, self.geometry.columns), self.isa.lanes
        return self.lanes.keep(load(self.buffers[-1], panel * width + column, lanes), "float32")

    def _register(self) -> Register:
        register = self.program.register("float32", self.isa.lanes)
        register.value = self.lanes.const(0.0, "float32")
        return register
