"""The interface of a vector instruction set. All SIMD kernels are written against it.

An architecture implements `Isa` with its instructions and its `Rates`, and contains no kernels. The kernel families
also rely on the following:

- Activations are stored as unsigned bytes (`layout.BIAS`). An operand of `Isa.dot` contains them minus
  `Isa.operand_zero_point`, so an instruction set may multiply unsigned by signed bytes, or signed by signed bytes.
- A vector has `lanes` accumulators of 32 bits. Each accumulator belongs to one output channel, and a block has as many
  channels as a vector has accumulators.
- A vector of bytes contains `PIXELS` pixels of a block, because a byte is a fourth of an accumulator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from service.compiler.kernels.program import Buffer, Expr, Program
from service.compiler.kernels.vector.rates import MatrixRates, Rates
from service.core.arrays import Array

FULL = range(4)  # the indices of all bytes of a group
PIXELS = 4  # the number of pixels of a block in a vector of bytes


class Lookup(Protocol):
    """A table of 256 bytes in registers, as a function of vectors."""

    def __call__(self, vector: Expr, lanes: int) -> Expr:
        """Looks up the bytes of `vector`. `lanes` is a power of two and at most the bytes of a vector."""


class Matrix(Protocol):
    """Instructions that multiply tiles: a tile of activations by a tile of weights, added to a tile of totals.

    A tile of activations is `rows` pixels by `depth` unsigned bytes. A tile of weights is `depth` signed bytes by
    `Isa.lanes` channels. A tile of totals is `rows` pixels by `Isa.lanes` int32 channels. The number of rows of tiles
    with pixels is configured. Tiles are numbered.
    """

    @property
    def tiles(self) -> int:
        """The number of tile registers."""

    @property
    def rows(self) -> int:
        """The largest number of rows of a tile."""

    @property
    def depth(self) -> int:
        """The number of bytes of a pixel that one instruction multiplies."""

    @property
    def weight_bytes(self) -> int:
        """The size of a tile of weights."""

    @property
    def rates(self) -> MatrixRates:
        """The rates that the cost model uses."""

    def pack_weights(self, weights: Array) -> Array:
        """Converts `[…, lanes, depth]` integers in the range of int8 to `[…, weight_bytes] int8` in tile order."""

    def configure(
        self, program: Program, memory: Buffer, offset: Expr, rows: int, pixel_tiles: Collection[int]
    ) -> None:
        """Begins the use of tiles in this thread.

        Args:
            memory: uint8; 64 bytes from `offset` are overwritten.
            rows: the rows of tiles that contain pixels.
            pixel_tiles: the numbers of these tiles. The others contain weights.
        """

    def release(self, program: Program) -> None:
        """Ends the use of tiles in this thread, whose tiles need not be saved from then on."""

    def zero(self, program: Program, tile: int) -> None:
        """Sets all elements of a tile to 0."""

    def load(self, program: Program, tile: int, buffer: Buffer, offset: Expr, stride: int) -> None:
        """Loads the rows of a tile, each 64 bytes, `stride` bytes apart, from element `offset` of a byte buffer."""

    def store(self, program: Program, tile: int, buffer: Buffer, offset: Expr, stride: int) -> None:
        """Stores the rows of a tile, with arguments as for `load`."""

    def multiply(self, program: Program, totals: int, activations: int, weights: int) -> None:
        """Adds the products of two tiles to a third."""


class Pairs(Protocol):
    """Instructions that multiply two neighboring pixels by the weights of two output channels: vectors of four sums.

    The totals of four channels of two pixels are two such vectors, until `separate` is called.
    """

    @property
    def depth(self) -> int:
        """The number of bytes of a pixel that one instruction multiplies: two blocks of channels."""

    @property
    def weight_elements(self) -> int:
        """The number of weight bytes for `depth` input channels and one block."""

    def pack_weights(self, weights: Array) -> Array:
        """Converts `[…, lanes, depth]` integers in the range of int8 to `[…, weight_elements]`, in the order in which
        `weights` loads them."""

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, Expr]:
        """Loads the weights of one block from element `offset`: two vectors with the weights of two channels each."""

    def operands(self, program: Program, buffer: Buffer, base: Expr, plane: int, columns: int) -> list[Expr]:
        """Loads `columns` neighboring pixels from `base`, in pairs. The second block is `plane` bytes after the first.

        If `columns` is odd, one more pixel is read.
        """

    def multiply(self, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        """Returns `totals` plus the products of two pixels and two channels."""

    def started(self, start: Expr) -> tuple[Expr, Expr]:
        """Returns the totals of two pixels, both initialized with a block's int32 values."""

    def separate(self, first: Expr, second: Expr) -> tuple[Expr, Expr]:
        """Converts the totals of two pixels of a block to one vector for each pixel, with one lane for each channel."""


class FixedPoint(Protocol):
    """Rounded products of int32 vectors and significands of at least 2**30; `qnn.numerics.fixed_point` on vectors."""

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
    """Products of bfloat16 pairs, added to float32; `qnn.numerics.bfloat16` on vectors.

    A pair is 32 bits, with its first value in the lower half.
    """

    def words(self, program: Program, values: Expr) -> Expr:
        """Rounds `lanes` float32 values to bfloat16 values, as uint16."""

    def add_products(self, program: Program, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        """Returns `totals` plus, in each lane, the products of the two values of a pair (int32)."""


class Isa(Protocol):
    """A vector instruction set, with vectors of one width and accumulators of 32 bits.

    An `operand` and its `weights` are tuples of vectors. An instruction set without a dot product of bytes multiplies
    wider elements, and needs several vectors.
    """

    @property
    def name(self) -> str:
        """The name of the target."""

    @property
    def lanes(self) -> int:
        """The number of accumulators in a vector, which is also the number of channels in a block."""

    @property
    def registers(self) -> int:
        """The number of vector registers that a tile may use."""

    @property
    def rates(self) -> Rates:
        """The rates that the cost models use."""

    @property
    def fixed_point(self) -> FixedPoint:
        """Its fixed-point arithmetic."""

    @property
    def bfloat16(self) -> BFloat16:
        """Its products of bfloat16 pairs."""

    @property
    def matrix(self) -> Matrix | None:
        """The instructions that multiply tiles, or None."""

    @property
    def pairs(self) -> Pairs | None:
        """The instructions that multiply pairs of pixels, or None."""

    @property
    def bytes(self) -> int:
        """The size of a vector in bytes: `4 * lanes`."""

    @property
    def group(self) -> int:
        """The number of bytes that `dot` multiplies for one accumulator."""

    @property
    def unrolled(self) -> int:
        """The largest number of groups in one step of a reduction's loop; a power of two."""

    # --- weights ---

    @property
    def weight_dtype(self) -> str:
        """The dtype of stored weights."""

    @property
    def weight_limits(self) -> tuple[int, int]:
        """The smallest and the largest weight that `dot` accepts. Weights minus their zero point may be -255..255."""

    @property
    def weight_vectors(self) -> int:
        """The number of vectors with the weights of one group for one block of channels."""

    @property
    def weight_elements(self) -> int:
        """The number of elements of `weight_dtype` in the weights of one group for one block of channels."""

    def pack_weights(self, weights: Array) -> Array:
        """Converts `[…, lanes, group]` integers within `weight_limits` to `[…, weight_elements]`, in the order in which
        `weights` loads them."""

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        """Loads the weights of one group for one block of channels, from element `offset`."""

    def computed_weights(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        """Converts lanes of `group` signed bytes, which were computed at run time, to weights."""

    @property
    def ones(self) -> tuple[Expr, ...]:
        """Returns weights of 1, with which `dot` computes a sum."""

    # --- multiplication ---

    @property
    def operand_zero_point(self) -> int:
        """The number that is subtracted from bytes to make an operand: 0, or 128 if operands are signed."""

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        """Loads an operand with the `group` bytes from `offset` in every lane."""

    def operands(
        self, program: Program, buffer: Buffer, base: Expr, steps: Sequence[int]
    ) -> Iterator[tuple[Expr, ...]]:
        """Yields, for each step, the result of `broadcast` for the offset `base + step`.

        Code is written when the next operand is requested, so each operand can be used before the next is loaded and
        few of them are in registers. Steps that are `group` bytes apart may share a load.
        """

    def gather_indices(self, program: Program, buffer: Buffer, offset: Expr) -> Expr:
        """Loads the indices for `gather` from byte `offset`: an int8 channel of a block for each byte of the vector."""

    def gather(self, program: Program, buffer: Buffer, offset: Expr, indices: Expr) -> tuple[Expr, ...]:
        """Loads an operand in which each lane has its own `group` channels, of the pixel of a block at `offset`.

        Args:
            indices: the result of `gather_indices`.
        """

    def operand(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        """Converts lanes of `group` unsigned bytes to an operand, by subtracting `operand_zero_point`."""

    def dot(
        self, accumulator: Expr, operand: tuple[Expr, ...], weights: tuple[Expr, ...], places: Collection[int] = FULL
    ) -> Expr:
        """Returns `accumulator` plus, in each lane, `group` products.

        Args:
            places: the indices in a group whose weights may be other than 0.
        """

    def dot_int16(self, accumulator: Expr, operand: Expr, weights: Expr) -> Expr:
        """Returns `accumulator` plus, in each lane, two products of 16-bit values."""

    def round_product(self, x: Expr, y: Expr) -> Expr:
        """(x * y + 2**14) >> 15 for vectors of `2 * lanes` 16-bit values, which are not both -32768."""

    # --- conversion ---

    def round_even(self, value: Expr) -> Expr:
        """Rounds float32 to int32, halves to even. Values below int32 become its minimum. None may be above int32."""

    def pack(self, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> Expr:
        """Adds `zero_point` to four vectors of int32 (four pixels of one block), and saturates to bytes, by pixel.

        Args:
            zero_point: int16; None for 0.
        """

    def pack_centred(self, pixels: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        """`pack` with a zero point of 128."""

    @property
    def transpose_indices(self) -> Array:
        """The int32 values `[lanes]` that `transposed` needs, to be stored in a buffer."""

    def transposed(self, program: Program, vector: Expr, indices: Expr) -> tuple[Expr, ...]:
        """Converts the bytes of four pixels of one block to an operand with the four pixels of a channel in each lane.

        Args:
            indices: `transpose_indices`, loaded from a buffer.
        """

    # --- tables ---

    def arrange_table(self, values: Array) -> Array:
        """Arranges a table `[256] uint8` in the order in which `lookup` loads it."""

    def lookup(self, program: Program, entries: Buffer, offset: Expr = 0) -> Lookup:
        """Loads the table that `arrange_table` returned, from byte `offset` of `entries`."""


def worth_sharing(isa: Isa, estimated_cycles: float) -> bool:
    """Returns true if a kernel runs long enough to be divided among threads."""
    return estimated_cycles > isa.rates.sharing
