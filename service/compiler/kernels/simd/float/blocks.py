"""Weights of 4 or 8 bits in blocks, in the layout in which a float32 product reads them (`qnn.block_matmul`).

A word of 32 bits contains the integers of one column and of as many neighboring rows as fit. A vector of words contains
neighboring columns, so a load, a shift and a mask yield a vector with one row's integers. The integers are written into
the low bits of the float32 number 2**23, which gives 2**23 plus the integer, exactly. Subtracting 2**23 and the zero
point is exact too. Only the product with the scale is rounded, as in `BlockMatMul`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.program import Buffer, Expr, bits, load, splat
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array

_WORD_BITS = 32
_LARGEST_WHOLE = 1 << 23  # all float32 numbers of at least this are integers
_ITS_BITS = 0x4B000000

# A function that is called with the index of a row (a step of the sum) and that row's vectors of weights.
Use = Callable[[Expr, list[Expr]], None]


@dataclass(frozen=True)
class Blocked:
    """Constant weights in blocks.

    Attributes:
        stored: `[depth, columns]` uint8, with one value of `bits` bits in each byte.
        scales, points: scales and zero points, `[blocks, columns]` float32 and uint8.
        size: the number of rows in a block.
    """

    stored: Array
    scales: Array
    points: Array
    size: int
    bits: int

    @property
    def per_word(self) -> int:
        return _WORD_BITS // self.bits

    @property
    def words(self) -> int:
        """The number of words in one column of a block."""
        return -(-self.size // self.per_word)


class BlockPanels:
    """Weights in blocks, in the order in which the kernel loads them.

    The columns are divided into *parts*. A part is as many vectors of columns as a tile of the product has.
    """

    def __init__(self, blocked: Blocked, parts: Sequence[Sequence[int]], lanes: int) -> None:
        """`parts` lists, for each part, the first column of each of its vectors."""
        self.blocked, self.lanes, self.vectors = blocked, lanes, len(parts[0])
        self.count, width = blocked.scales.shape
        self._parts, self._width = parts, max(width, lanes)
        offsets = (blocked.points.astype(np.float32) + np.float32(_LARGEST_WHOLE)).astype(np.float32)
        self._one_point = bool((offsets == offsets.flat[0]).all())
        self.constants: tuple[Array, ...] = (
            self._in_parts(self._packed()),
            self._in_parts(blocked.scales),
            offsets.reshape(-1)[:1] if self._one_point else self._in_parts(offsets),
        )

    def _packed(self) -> Array:
        """Returns the words `[words of all blocks, columns]` int32. The first row of a word is in its lowest bits."""
        blocked, width = self.blocked, self.blocked.stored.shape[1]
        filled = np.zeros((self.count, blocked.words * blocked.per_word, width), np.uint32)
        for block in range(self.count):
            rows = blocked.stored[block * blocked.size : (block + 1) * blocked.size]
            filled[block, : len(rows)] = rows
        positions = np.arange(blocked.per_word, dtype=np.uint32) * np.uint32(blocked.bits)
        shifted = filled.reshape(-1, blocked.per_word, width) << positions[:, np.newaxis]
        return np.asarray(np.bitwise_or.reduce(shifted, axis=1).view(np.int32))

    def _in_parts(self, rows: Array) -> Array:
        """Converts `[rows, columns]` to `[part, row, vector, lane]`, as a flat array."""
        filled = np.zeros((len(rows), self._width), rows.dtype)
        filled[:, : rows.shape[1]] = rows
        vectors = [np.stack([filled[:, at : at + self.lanes] for at in part], axis=1) for part in self._parts]
        return np.stack(vectors).reshape(-1)

    def each(self, lanes: Lanes, buffers: Sequence[Buffer], part: Expr, use: Use) -> None:
        """Decodes a part, and calls `use` for each of its rows, in order."""
        program, size, (depth, _) = lanes.program, self.blocked.size, self.blocked.stored.shape
        whole, rest = divmod(depth, size)
        for first, count, rows in ((0, whole, size), (whole, 1, rest)):
            if not count or not rows:
                continue
            with program.loop(count, "block") as at:
                block = program.bind(first + at)
                decoding = _Decoding(self, lanes, buffers, program.bind(part * self.count + block))
                words, left = divmod(rows, self.blocked.per_word)
                with program.loop(words, "word") as word:
                    product = program.bind(block * size + word * self.blocked.per_word)
                    decoding.word(word, product, self.blocked.per_word, use)
                if left:
                    product = program.bind(block * size + words * self.blocked.per_word)
                    decoding.word(words, product, left, use)

    def point(self, lanes: Lanes, buffer: Buffer, row: Expr, vector: int) -> Expr:
        if self._one_point:
            return lanes.keep(splat(load(buffer, 0, 1), self.lanes), "float32")
        return self.vector(lanes, buffer, row, vector, "float32")

    def vector(self, lanes: Lanes, buffer: Buffer, row: Expr, vector: int, dtype: str) -> Expr:
        """Loads one vector of a row. Rows are numbered consecutively through all parts."""
        return lanes.keep(load(buffer, (row * self.vectors + vector) * self.lanes, self.lanes), dtype)


class _Decoding:
    """Decodes one block of a part. The scales and zero points of the block stay in registers."""

    def __init__(self, panels: BlockPanels, lanes: Lanes, buffers: Sequence[Buffer], block: Expr) -> None:
        self.panels, self.lanes, self.program = panels, lanes, lanes.program
        self.words, scales, offsets = buffers
        self.first = self.program.bind(block * panels.blocked.words)
        self.scales = [panels.vector(lanes, scales, block, at, "float32") for at in range(panels.vectors)]
        self.offsets = [panels.point(lanes, offsets, block, at) for at in range(panels.vectors)]

    def word(self, number: Expr, product: Expr, count: int, use: Use) -> None:
        """Decodes the first `count` rows of word number `number`, and calls `use` for each.

        `product` is the index of the word's first row.
        """
        row = self.program.bind(self.first + number)
        words = [self.panels.vector(self.lanes, self.words, row, at, "int32") for at in range(self.panels.vectors)]
        for index in range(count):
            use(product + index, [self._decoded(word, at, index) for at, word in enumerate(words)])

    def _decoded(self, word: Expr, vector: int, index: int) -> Expr:
        lanes, own = self.lanes, self.panels.blocked.bits
        moved = word >> lanes.const(own * index) if index else word
        whole = (moved & lanes.const((1 << own) - 1)) | lanes.const(_ITS_BITS)
        real = lanes.keep(bits(f"float32x{lanes.isa.lanes}", whole) - self.offsets[vector], "float32")
        return lanes.keep(real * self.scales[vector], "float32")
