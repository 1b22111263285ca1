"""The interface of a vector instruction set, which every kernel family is written in.

An architecture implements `Isa`, with its instructions and its `Rates`, and writes no kernel. What the families rely on
besides it:

- Activations are stored as unsigned bytes (`layout.BIAS`). An operand of `Isa.dot` holds them less
  `Isa.operand_zero_point`, so that an instruction set may multiply unsigned by signed bytes, or signed by signed ones.
- A vector has `lanes` accumulators of 32 bits, and an accumulator belongs to one output channel; a block of channels is
  as many as a vector has accumulators.
- A vector of bytes holds `PIXELS` pixels of a block, because a byte is a fourth of an accumulator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from service.compiler.kernels.program import Buffer, Expr, Program
from service.compiler.kernels.vector.rates import MatrixRates, Rates
from service.core.arrays import Array

FULL = range(4)  # the places of a group
PIXELS = 4  # pixels of a block that one vector of bytes holds


class Lookup(Protocol):
    """A table of 256 bytes in registers, as a function of vectors."""

    def __call__(self, vector: Expr, lanes: int) -> Expr:
        """The entries at `lanes` bytes, which are a power of two and at most a vector."""


class Matrix(Protocol):
    """Instructions that multiply tiles: a tile of activations by a tile of weights, added to a tile of totals.

    A tile of activations is `rows` pixels by `depth` unsigned bytes, one of weights `depth` signed bytes by
    `Isa.lanes` channels, and one of totals `rows` pixels by `Isa.lanes` int32 channels. How many rows tiles have that
    hold pixels is configured. Tiles are numbered.
    """

    @property
    def tiles(self) -> int:
        """Tile registers."""

    @property
    def rows(self) -> int:
        """The most rows of a tile."""

    @property
    def depth(self) -> int:
        """Bytes of a pixel that one instruction multiplies."""

    @property
    def weight_bytes(self) -> int:
        """The size of a tile of weights."""

    @property
    def rates(self) -> MatrixRates:
        """The rates that the cost model uses."""

    def pack_weights(self, weights: Array) -> Array:
        """`[…, lanes, depth]` integers that fit int8 -> `[…, weight_bytes] int8`, in the order of a tile."""

    def configure(
        self, program: Program, memory: Buffer, offset: Expr, rows: int, pixel_tiles: Collection[int]
    ) -> None:
        """Begins the use of tiles in this thread.

        Args:
            memory: uint8; 64 bytes from `offset` are overwritten.
            rows: of the tiles that hold pixels.
            pixel_tiles: their numbers; the others hold weights.
        """

    def release(self, program: Program) -> None:
        """Ends it. The thread's tiles need not be saved from then on."""

    def zero(self, program: Program, tile: int) -> None:
        """Sets all elements of a tile to 0."""

    def load(self, program: Program, tile: int, buffer: Buffer, offset: Expr, stride: int) -> None:
        """The rows of a tile, each 64 bytes, `stride` bytes apart, from element `offset` of a buffer of bytes."""

    def store(self, program: Program, tile: int, buffer: Buffer, offset: Expr, stride: int) -> None:
        """The inverse of `load`."""

    def multiply(self, program: Program, totals: int, activations: int, weights: int) -> None:
        """Adds the products of two tiles to a third."""


class Pairs(Protocol):
    """Instructions that multiply two neighbouring pixels by two channels each: a vector of four sums.

    A block of four channels of two pixels is two such vectors, until they are `settled`.
    """

    @property
    def depth(self) -> int:
        """Bytes of a pixel that one instruction multiplies: two blocks of channels."""

    @property
    def weight_elements(self) -> int:
        """Bytes of the weights of `depth` input channels for one block."""

    def pack_weights(self, weights: Array) -> Array:
        """`[…, lanes, depth]` integers that fit int8 -> `[…, weight_elements]` in the order that `weights` loads."""

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, Expr]:
        """The weights of one block, from element `offset`: those of two channels each."""

    def operands(self, program: Program, buffer: Buffer, base: Expr, plane: int, columns: int) -> list[Expr]:
        """`columns` neighbouring pixels from `base`, two by two; the second block is `plane` bytes behind.

        Of an odd number, one pixel more is read.
        """

    def multiply(self, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        """`totals` plus the products of two pixels and two channels."""

    def started(self, start: Expr) -> tuple[Expr, Expr]:
        """The totals of two pixels that both start from a block's int32 values."""

    def settled(self, first: Expr, second: Expr) -> tuple[Expr, Expr]:
        """The totals of a block of two pixels -> those of each pixel, a lane for each channel."""


class FixedPoint(Protocol):
    """Products of int32 vectors and significands of at least 2**30, rounded: `qnn.numerics.fixed_point` on vectors."""

    def high_mul(self, program: Program, x: Expr, significand: Expr) -> Expr:
        """(x * significand + 2**30) >> 31."""

    def divide_by_pot(self, program: Program, x: Expr, exponent: Expr) -> Expr:
        """x / 2**exponent, halves away from zero; exponents of at least 1."""

    def round_twice(self, program: Program, x: Expr, significand: Expr, exponent: Expr) -> Expr:
        """divide_by_pot(high_mul(x, significand), exponent), for |x| < 2**30 and exponents of at least 1."""

    def scale_once(self, program: Program, x: Expr, significand: Expr, right: Expr, *, away: bool) -> Expr:
        """(x * significand + 2**(right - 1)) >> right in 64 bits, which rounds halves up; with `away`, halves away from
        zero. `right` is 31 or more, so that the result fits."""


class BFloat16(Protocol):
    """Products of bfloat16 pairs, added to float32: `qnn.numerics.bfloat16` on vectors. A pair is 32 bits, its first
    value in the lower half."""

    def words(self, program: Program, values: Expr) -> Expr:
        """`lanes` float32 -> the nearest bfloat16, uint16."""

    def add_products(self, program: Program, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        """`totals` plus, in each lane, the products of two pairs (int32)."""


class Isa(Protocol):
    """A vector instruction set. Vectors of one width, with 32-bit lanes as accumulators.

    An `operand` and the `weights` that it is multiplied with are tuples of vectors: an instruction set without a dot
    product of bytes multiplies wider elements, and needs several.
    """

    @property
    def name(self) -> str:
        """The target's."""

    @property
    def lanes(self) -> int:
        """Accumulators of a vector; also the channels of a block."""

    @property
    def registers(self) -> int:
        """Vector registers that a tile may fill."""

    @property
    def rates(self) -> Rates:
        """The rates that the cost models use."""

    @property
    def fixed_point(self) -> FixedPoint:
        """Its arithmetic of fixed-point numbers."""

    @property
    def bfloat16(self) -> BFloat16:
        """Its products of bfloat16 pairs."""

    @property
    def matrix(self) -> Matrix | None:
        """The instructions that multiply tiles, where there are some."""

    @property
    def pairs(self) -> Pairs | None:
        """The instructions that multiply pairs of pixels, where there are some."""

    @property
    def bytes(self) -> int:
        """The size of a vector in bytes: `4 * lanes`."""

    @property
    def group(self) -> int:
        """Bytes that `dot` multiplies for one accumulator."""

    @property
    def unrolled(self) -> int:
        """Groups of a reduction that are multiplied in one step of its loop, at most; a power of two."""

    # --- weights ---

    @property
    def weight_dtype(self) -> str:
        """The dtype of stored weights."""

    @property
    def weight_limits(self) -> tuple[int, int]:
        """Smallest and largest weight that `dot` takes (weights less their zero point reach -255..255)."""

    @property
    def weight_vectors(self) -> int:
        """Vectors that hold the weights of one group for one block of channels."""

    @property
    def weight_elements(self) -> int:
        """Elements of `weight_dtype` in the weights of one group for one block of channels."""

    def pack_weights(self, weights: Array) -> Array:
        """`[…, lanes, group]` integers within `weight_limits` -> `[…, weight_elements]` in the order that `weights`
        loads."""

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        """The weights of one group for one block of channels, from element `offset`."""

    def computed_weights(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        """Lanes of `group` signed bytes, which were computed, as weights."""

    @property
    def ones(self) -> tuple[Expr, ...]:
        """Weights of 1, so that `dot` sums."""

    # --- multiplication ---

    @property
    def operand_zero_point(self) -> int:
        """What an operand's bytes are less than those it was made of: 0, or 128 where they become signed."""

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        """An operand with the `group` bytes from `offset` in every lane."""

    def operands(
        self, program: Program, buffer: Buffer, base: Expr, steps: Sequence[int]
    ) -> Iterator[tuple[Expr, ...]]:
        """For each step, what `broadcast` makes of the bytes so many behind `base`.

        Code is written as they are asked for: one is used before the next is made, so few are in registers. Steps that
        are `group` bytes apart may share a load.
        """

    def gather_indices(self, program: Program, buffer: Buffer, offset: Expr) -> Expr:
        """The indices for `gather` from byte `offset`: for each of the vector's bytes, a channel of a block, int8."""

    def gather(self, program: Program, buffer: Buffer, offset: Expr, indices: Expr) -> tuple[Expr, ...]:
        """An operand with `group` channels of its own in each lane, of the pixel of a block at `offset`.

        Args:
            indices: from `gather_indices`.
        """

    def operand(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        """An operand of lanes of `group` unsigned bytes, less `operand_zero_point`."""

    def dot(
        self, accumulator: Expr, operand: tuple[Expr, ...], weights: tuple[Expr, ...], places: Collection[int] = FULL
    ) -> Expr:
        """`accumulator` plus, in each lane, `group` products.

        Args:
            places: of a group, all but those whose weights are 0.
        """

    def dot_int16(self, accumulator: Expr, operand: Expr, weights: Expr) -> Expr:
        """`accumulator` plus, in each lane, two products of 16-bit values."""

    def round_product(self, x: Expr, y: Expr) -> Expr:
        """(x * y + 2**14) >> 15 of vectors of `2 * lanes` 16-bit values, of which not both are the smallest."""

    # --- conversion ---

    def round_even(self, value: Expr) -> Expr:
        """float32 -> int32, halves to even. What lies below int32 becomes its smallest value; nothing lies above."""

    def pack(self, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> Expr:
        """Four vectors of int32 (four pixels of one block), plus `zero_point`, saturated to bytes, pixel by pixel.

        Args:
            zero_point: int16; None for zero.
        """

    def pack_centred(self, pixels: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        """`pack` with a zero point of 128."""

    @property
    def transpose_indices(self) -> Array:
        """int32 `[lanes]` that `transposed` reads from a buffer."""

    def transposed(self, program: Program, vector: Expr, indices: Expr) -> tuple[Expr, ...]:
        """An operand of the bytes of four pixels of one block: in each lane (channel), its four pixels.

        Args:
            indices: the values of `transpose_indices`, loaded from a buffer.
        """

    # --- tables ---

    def arrange_table(self, values: Array) -> Array:
        """A table `[256] uint8` in the order in which `lookup` loads it."""

    def lookup(self, program: Program, entries: Buffer, offset: Expr = 0) -> Lookup:
        """The table that lies, as `arrange_table` gave it, in `entries` from byte `offset` on."""


def worth_sharing(isa: Isa, estimated_cycles: float) -> bool:
    """Whether a kernel runs long enough for several threads."""
    return estimated_cycles > isa.rates.sharing
