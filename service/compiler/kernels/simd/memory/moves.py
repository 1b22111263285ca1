"""The kernel of moves (`kernels.moves`): loads source vectors, shuffles their lanes, and stores destination vectors.

If consecutive vectors are contiguous in the destination and in all sources, several are copied at once, with the same
shuffle repeated for each of them. Squares are transposed by interleaving vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.tables import ENTRIES
from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.moves import Memory, Move, Pattern, Square, patterns
from service.compiler.kernels.program import Buffer, Expr, Program, interleaved, load, load_first
from service.compiler.kernels.simd.memory.reorder import as_shown, as_stored
from service.compiler.kernels.vector.isa import Isa, worth_sharing
from service.core.models.arrays import Array

_CHUNK = 256  # if threads share the work, the number of vectors that an iteration of the parallel loop copies
_DTYPES = (*BIAS, "float32", "int32")


def move(isa: Isa, made: Move) -> Kernel:
    """Returns the kernel of a move. Each iteration of the parallel loop copies a part of a progression of vectors.

    Raises:
        Declined: `patterns` declines the move, or the elements do not have 8 or 32 bits.
    """
    dtypes = {memory.dtype for memory in (*made.sources, made.destination)}
    if not dtypes <= set(_DTYPES) or (len(dtypes) > 1 and not dtypes <= BIAS.keys()):
        raise Declined(f"it copies elements of type {', '.join(sorted(dtypes))}")
    return _Move(isa, made).kernel()


class _Move:
    def __init__(self, isa: Isa, made: Move) -> None:
        self.isa, self.made, self.program = isa, made, Program()
        self.lanes = isa.lanes
        self.of_bytes = made.destination.dtype in BIAS
        self.at_once = isa.bytes // isa.lanes if self.of_bytes else 1
        self.patterns, self.squares = patterns(made.sources, made.destination, made.elements, isa.lanes)
        self.tables = [table for table in made.tables if table is not None]
        loads = sum(pattern.vectors * len(pattern.parts) for pattern in self.patterns)
        loads += sum(square.vectors for square in self.squares)
        self.parallel = worth_sharing(isa, isa.rates.elementwise * loads)
        # Images contain stored bytes, with 128 added to signed values. A lookup table needs stored bytes too.
        ends = (*made.sources, made.destination)
        self.as_stored = bool(self.tables) or any(memory.image is not None for memory in ends) or not self._alike(ends)

    @staticmethod
    def _alike(ends: Sequence[Memory]) -> bool:
        return len({memory.dtype for memory in ends}) == 1

    def kernel(self) -> Kernel:
        program, made = self.program, self.made
        self.read = [self._parameter(f"source_{index}", memory) for index, memory in enumerate(made.sources)]
        items = self._items()
        constants: list[Array] = [items.reshape(-1)]
        self.items = program.parameter("items", "int32", items.size)
        if self.tables:
            constants.append(np.concatenate([self.isa.arrange_table(table) for table in self.tables]))
            self.entries = program.parameter("tables", "uint8", constants[-1].size)
        image = made.destination.image
        if image is not None and image.halo:
            constants.append(np.array([made.fill], np.uint8))
            fill = load(program.parameter("fill", "uint8", 1), 0, 1)
        self.written = self._parameter("destination", made.destination)
        if image is not None and image.halo:
            planes = image.batch * image.blocks
            fill_halo(program, self.isa.bytes, self.written, image, fill, plane=0, planes=planes, when=True)
        with program.loop(len(items), "item", parallel=self.parallel and len(items) > 1) as item:
            row = program.bind(item * items.shape[1])
            kind = program.bind(load(self.items, row, 1))
            for number, pattern in enumerate(self._kinds):
                with program.when(kind == number if len(self._kinds) > 1 else True):
                    self._vectors(pattern, row)
        facts = {"patterns": len(self.patterns), "squares": len(self.squares), "tables": len(self.tables)}
        size = made.destination.size * np.dtype(made.destination.dtype).itemsize
        return Kernel("move", program.function(), tuple(constants), size, facts)

    def _parameter(self, name: str, memory: Memory) -> Buffer:
        return self.program.parameter(name, "uint8" if memory.image is not None else memory.dtype, memory.size)

    def _items(self) -> Array:
        """Returns one row for each iteration of the parallel loop, `[items, columns]` int32.

        A row contains the index of the code that copies the vectors (in `_kinds`), their number, and the offsets of the
        first vector in the destination and in each window.
        """
        self._kinds: list[tuple[Pattern | Square, int]] = []
        rows: list[list[int]] = []
        chunk = _CHUNK if self.parallel else 1 << 30
        every: list[Pattern | Square] = [*self.patterns, *self.squares]
        for pattern in every:
            numbers: dict[int, int] = {}
            for progression in pattern.progressions:
                neighbours = isinstance(pattern, Pattern) and set(pattern.steps) == {self.lanes}
                together = neighbours and progression.count >= self.at_once
                width = self.at_once if together else 1
                if width not in numbers:
                    numbers[width] = len(self._kinds)
                    self._kinds.append((pattern, width))
                parts = max(1, progression.count // chunk)
                bounds = [progression.count * part // parts for part in range(parts + 1)]
                for begin, end in pairwise(bounds):
                    starts = [
                        start + begin * step for start, step in zip(progression.starts, pattern.steps, strict=True)
                    ]
                    rows.append([numbers[width], end - begin, *starts])
        columns = max(len(row) for row in rows)
        return np.array([row + [0] * (columns - len(row)) for row in rows], np.int32)

    def _vectors(self, kind: tuple[Pattern | Square, int], row: Expr) -> None:
        """Writes the loop over the vectors of an iteration. The loop copies several vectors at a time if they are
        contiguous.
        """
        program, (pattern, width) = self.program, kind
        count, *starts = (
            program.bind(load(self.items, row + 1 + position, 1)) for position in range(1 + len(pattern.steps))
        )
        with program.loop((count + (width - 1)) // width, "step") as step:
            position = program.bind(tirx.min(step * width, count - width))
            to, *positions = (
                program.bind(start + position * size) for start, size in zip(starts, pattern.steps, strict=True)
            )
            if isinstance(pattern, Square):
                self._transposed(pattern, to, positions[0])
            else:
                lanes = self.lanes * width
                loaded = [load(self.read[part], at, lanes) for part, at in zip(pattern.parts, positions, strict=True)]
                program.store(self.written, to, self._shuffle(pattern, loaded, width), lanes)

    def _transposed(self, square: Square, to: Expr, start: Expr) -> None:
        """Transposes a square. The transposition interleaves the first half of the vectors with the second half,
        log2(lanes) times.
        """
        program, lanes, source = self.program, self.lanes, self.made.sources[square.part]
        read = self.read[square.part]
        dtype = "uint8" if self.as_stored else str(read.dtype)
        vectors = []
        for column in range(lanes):
            at = start + min(column, square.columns - 1) * square.step
            inside = source.image is not None or square.rows == lanes  # an image has slack after its end
            loaded = load(read, at, lanes) if inside else load_first(read, at, lanes, square.rows)
            vectors.append(self._bind_vector(self._converted(square.part, loaded, lanes), dtype))
        half = lanes // 2
        for _ in range(lanes.bit_length() - 1):
            vectors = [
                self._bind_vector(interleaved(vectors[index], vectors[index + half], lanes, upper=upper), dtype)
                for index in range(half)
                for upper in (False, True)
            ]
        for row in range(square.rows):
            program.store(self.written, to + row * square.to, self._to_destination(vectors[row], lanes), lanes)

    def _bind_vector(self, vector: Expr, dtype: str) -> Expr:
        register = self.program.register(dtype, self.lanes)
        register.value = vector
        return register.value

    def _to_destination(self, vector: Expr, lanes: int) -> Expr:
        """Converts stored bytes to the destination's type."""
        shown = self.as_stored and self.made.destination.image is None
        return as_shown(self.made.destination.dtype, vector, lanes) if shown else vector

    def _shuffle(self, pattern: Pattern, loaded: Sequence[Expr], width: int) -> Expr:
        lanes = self.lanes * width
        if len({self._conversion(part) for part in pattern.parts}) == 1:
            made = self._converted(pattern.parts[0], self._merged(pattern, loaded, width), lanes)
        else:
            converted = [
                self._converted(part, vector, lanes) for part, vector in zip(pattern.parts, loaded, strict=True)
            ]
            made = self._merged(pattern, converted, width)
        return self._to_destination(made, lanes)

    def _conversion(self, part: int) -> tuple[str, int]:
        """Returns a key of the conversion that `_converted` applies to a source. Equal conversions have equal keys."""
        source, table = self.made.sources[part], self.made.tables[part]
        own = next((index for index, each in enumerate(self.tables) if each is table), -1)
        return ("uint8" if source.image is not None else source.dtype), own

    def _converted(self, part: int, vector: Expr, lanes: int) -> Expr:
        """Converts values of a source to stored values of the destination."""
        dtype, table = self._conversion(part)
        if self.as_stored:
            vector = as_stored(dtype, vector, lanes)
        if table < 0:
            return vector
        return self.isa.lookup(self.program, self.entries, table * ENTRIES)(vector, lanes)

    def _merged(self, pattern: Pattern, vectors: Sequence[Expr], width: int) -> Expr:
        """Shuffles the lanes of the windows in the order of the pattern, for each of `width` consecutive vectors."""
        lanes, (merged, *others) = self.lanes * width, vectors
        windows = [position // self.lanes for position in pattern.order] * width
        own = [vector * self.lanes + position % self.lanes for vector in range(width) for position in pattern.order]
        if not others and own != list(range(lanes)):
            merged = tirx.Shuffle([merged], [tirx.const(lane, "int32") for lane in own])
        for window, vector in enumerate(others, 1):
            before = own if window == 1 else list(range(lanes))
            order = [
                lanes + lane if which == window else kept
                for which, lane, kept in zip(windows, own, before, strict=True)
            ]
            merged = tirx.Shuffle([merged, vector], [tirx.const(lane, "int32") for lane in order])
        return merged
