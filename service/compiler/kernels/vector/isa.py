"""The interface of a vector instruction set. All SIMD kernels are written against it.

An architecture implements `Isa` with its instructions and its `Rates`, and contains no kernels. The parameter
`accumulator` or `totals` is a vector of sums, to which products are added. The kernel families also rely on the
following:

- Activations are stored as unsigned bytes (`layout.BIAS`). An operand of `Isa.dot` contains these bytes minus
  `Isa.operand_zero_point`, so an instruction set may multiply unsigned by signed bytes, or signed by signed bytes.
- A vector has `lanes` accumulators of 32 bits, each for one output channel. A *block* is `lanes` contiguous channels of
  a pixel (the layout NCHWc).
- A vector of bytes contains a block of `PIXELS` pixels, because a byte is a fourth of an accumulator.
- A *group* is the `Isa.group` bytes that one lane of `Isa.dot` multiplies and adds to its accumulator, for example four
  input channels of one pixel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from service.compiler.kernels.program import Buffer, Expr, Program
from service.compiler.kernels.vector.rates import MatrixRates, Rates
from service.core.models.arrays import Array

FULL = range(4)  # the indices of all bytes of a group
PIXELS = 4  # the number of pixels whose channels of one block fill a vector of bytes


class Lookup(Protocol):
    """A table of 256 bytes in registers. Calling it looks up a vector."""

    def __call__(self, vector: Expr, lanes: int) -> Expr:
        """Looks up the bytes of `vector`. `lanes` is a power of two and at most the bytes of a vector."""


class Matrix(Protocol):
    """Instructions that multiply a tile of activations by a tile of weights, and add the products to a tile of
    accumulators.

    A tile is a register, identified by its number. A tile of activations contains `rows` pixels by `depth` unsigned
    bytes, a tile of weights `depth` signed bytes by `Isa.lanes` channels, and a tile of accumulators `rows` pixels by
    `Isa.lanes` int32 channels. `configure` sets the number of rows of the tiles that contain pixels.
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
            rows: the number of rows of the tiles that contain pixels (activations or accumulators).
            pixel_tiles: the numbers of these tiles. The other tiles contain weights.
        """

    def release(self, program: Program) -> None:
        """Ends the use of tiles in this thread. The operating system then need not save the tiles on a context
        switch.
        """

    def zero(self, program: Program, tile: int) -> None:
        """Sets all elements of a tile to 0."""

    def load(self, program: Program, tile: int, buffer: Buffer, offset: Expr, stride: int) -> None:
        """Loads a tile from element `offset` of a byte buffer. Its rows are 64 bytes long, and `stride` bytes apart."""

    def store(self, program: Program, tile: int, buffer: Buffer, offset: Expr, stride: int) -> None:
        """Stores a tile. The arguments are those of `load`."""

    def multiply(self, program: Program, totals: int, activations: int, weights: int) -> None:
        """Multiplies the tiles `activations` and `weights`, and adds the products to the tile `totals`."""


class Pairs(Protocol):
    """Instructions that multiply two neighboring pixels by the weights of two output channels, into a vector of four
    sums.

    The accumulators of two pixels and a block of four channels are two such vectors, until `separate` converts them to
    one vector for each pixel.
    """

    @property
    def depth(self) -> int:
        """The number of bytes of a pixel that one instruction multiplies: two blocks of channels."""

    @property
    def weight_elements(self) -> int:
        """The number of weight bytes for `depth` input channels and one block of output channels."""

    def pack_weights(self, weights: Array) -> Array:
        """Converts `[…, lanes, depth]` integers in the range of int8 to `[…, weight_elements]` in the order of
        `weights`.
        """

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, Expr]:
        """Loads the weights of one block from element `offset`, as two vectors with the weights of two channels
        each.
        """

    def operands(self, program: Program, buffer: Buffer, base: Expr, plane: int, columns: int) -> list[Expr]:
        """Loads `depth` channels of `columns` neighboring pixels from `base`, as one vector for each pair of pixels.

        The second block of channels is `plane` bytes after the first. If `columns` is odd, one more pixel is read.
        """

    def multiply(self, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        """Returns `totals` plus the products of two pixels and two channels."""

    def started(self, start: Expr) -> tuple[Expr, Expr]:
        """Returns accumulators for two pixels. Both pixels start with the int32 values of `start`, one for each
        channel.
        """

    def separate(self, first: Expr, second: Expr) -> tuple[Expr, Expr]:
        """Converts the accumulators of two pixels to one vector for each pixel, with one lane for each channel."""


class FixedPoint(Protocol):
    """The functions of `qnn.numerics.scaling.fixed_point` on vectors: int32 values times significands of at least
    2**30, rounded.
    """

    def high_mul(self, program: Program, x: Expr, significand: Expr) -> Expr:
        """Computes (x * significand + 2**30) >> 31."""

    def divide_by_pot(self, program: Program, x: Expr, exponent: Expr) -> Expr:
        """Computes x / 2**exponent, halves away from zero; exponents of at least 1."""

    def round_twice(self, program: Program, x: Expr, significand: Expr, exponent: Expr) -> Expr:
        """Computes divide_by_pot(high_mul(x, significand), exponent), for |x| < 2**30 and exponents of at least 1."""

    def scale_once(self, program: Program, x: Expr, significand: Expr, right: Expr, *, away: bool) -> Expr:
        """Computes (x * significand + 2**(right - 1)) >> right in 64 bits.

        Halves are rounded up, or away from zero if `away`. `right` is at least 31, so that the result fits int32.
        """


class BFloat16(Protocol):
    """The functions of `qnn.numerics.sums.bfloat16` on vectors: products of bfloat16 pairs, added to float32.

    A pair is 32 bits, with its first value in the lower half.
    """

    def words(self, program: Program, values: Expr) -> Expr:
        """Rounds `lanes` float32 values to bfloat16 values, as uint16."""

    def add_products(self, program: Program, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        """Returns `totals` plus, in each lane, the products of the two values of a pair (int32)."""


class Isa(Protocol):
    """A vector instruction set, with vectors of one width and accumulators of 32 bits.

    The two factors of `dot`, an `operand` of activations and `weights`, are tuples of vectors. An instruction set
    without a dot product of bytes multiplies wider elements, and needs several vectors for each.
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
        """The implementation of fixed-point arithmetic."""

    @property
    def bfloat16(self) -> BFloat16:
        """The implementation of products of bfloat16 pairs."""

    @property
    def matrix(self) -> Matrix | None:
        """The instructions that multiply tiles; None if there are none."""

    @property
    def pairs(self) -> Pairs | None:
        """The instructions that multiply pairs of pixels; None if there are none."""

    @property
    def bytes(self) -> int:
        """The size of a vector in bytes: `4 * lanes`."""

    @property
    def group(self) -> int:
        """The number of bytes that `dot` multiplies for one accumulator."""

    @property
    def unrolled(self) -> int:
        """The largest number of groups to which a reduction's loop is unrolled; a power of two."""

    # --- weights ---

    @property
    def weight_dtype(self) -> str:
        """The dtype of stored weights."""

    @property
    def weight_limits(self) -> tuple[int, int]:
        """The smallest and the largest weight that `dot` accepts. Weights minus their zero point may be -255..255."""

    @property
    def weight_vectors(self) -> int:
        """The number of vectors that contain the weights of one group for one block of output channels."""

    @property
    def weight_elements(self) -> int:
        """The number of elements of `weight_dtype` that contain the weights of one group for one block of output
        channels.
        """

    def pack_weights(self, weights: Array) -> Array:
        """Converts `[…, lanes, group]` integers within `weight_limits` to `[…, weight_elements]` in the order of
        `weights`.
        """

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        """Loads the weights of one group for one block of output channels, from element `offset`."""

    def computed_weights(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        """Converts a vector of signed bytes that was computed at run time to weights. Each lane is a group."""

    @property
    def ones(self) -> tuple[Expr, ...]:
        """Returns weights of 1, with which `dot` computes a sum."""

    # --- multiplication ---

    @property
    def operand_zero_point(self) -> int:
        """The number that is subtracted from bytes to make an operand: 0, or 128 if operands are signed."""

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        """Loads the `group` bytes from `offset`, and returns an operand that contains them in every lane."""

    def operands(
        self, program: Program, buffer: Buffer, base: Expr, steps: Sequence[int]
    ) -> Iterator[tuple[Expr, ...]]:
        """Yields, for each step, the result of `broadcast` for the offset `base + step`.

        The code of a load is generated when the caller requests the next operand. A caller that uses each operand
        before it requests the next one therefore needs few registers. Steps that are `group` bytes apart may share a
        load.
        """

    def gather_indices(self, program: Program, buffer: Buffer, offset: Expr) -> Expr:
        """Loads the indices for `gather` from byte `offset`: for each byte of a vector, the index of a channel in a
        block.
        """

    def gather(self, program: Program, buffer: Buffer, offset: Expr, indices: Expr) -> tuple[Expr, ...]:
        """Loads the block of channels at `offset`, and returns an operand in which each lane contains its own selection
        of these channels.

        Args:
            indices: the result of `gather_indices`.
        """

    def operand(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        """Converts a vector of unsigned bytes to an operand, by subtracting `operand_zero_point`. Each lane is a
        group.
        """

    def dot(
        self, accumulator: Expr, operand: tuple[Expr, ...], weights: tuple[Expr, ...], positions: Collection[int] = FULL
    ) -> Expr:
        """Returns `accumulator` plus, in each lane, the sum of `group` products.

        Args:
            positions: the indices of a group at which a weight may differ from 0. Other products may be skipped.
        """

    def dot_int16(self, accumulator: Expr, operand: Expr, weights: Expr) -> Expr:
        """Returns `accumulator` plus, in each lane, two products of 16-bit values."""

    def round_product(self, x: Expr, y: Expr) -> Expr:
        """Computes (x * y + 2**14) >> 15 for vectors of `2 * lanes` 16-bit values. x and y must not both be -32768."""

    # --- conversion ---

    def round_even(self, value: Expr) -> Expr:
        """Rounds float32 to int32, halves to even. Values below int32 become its minimum. No value may exceed int32."""

    def pack(self, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> Expr:
        """Adds `zero_point` to four vectors of int32 (one block of four pixels), and saturates them to one vector of
        bytes.

        Args:
            zero_point: int16; None for 0.
        """

    def pack_centred(self, pixels: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        """Does the same as `pack` with a zero point of 128."""

    @property
    def transpose_indices(self) -> Array:
        """The constant `[lanes] int32` that `transposed` reads from a buffer."""

    def transposed(self, program: Program, vector: Expr, indices: Expr) -> tuple[Expr, ...]:
        """Transposes a block of four pixels, and returns an operand with the four pixels of one channel in each lane.

        Args:
            indices: the vector `transpose_indices`, loaded from a buffer.
        """

    # --- tables ---

    def arrange_table(self, values: Array) -> Array:
        """Arranges a table `[256] uint8` in the order in which `lookup` loads it."""

    def lookup(self, program: Program, entries: Buffer, offset: Expr = 0) -> Lookup:
        """Loads a table that `arrange_table` arranged, from byte `offset` of `entries`."""


def worth_sharing(isa: Isa, estimated_cycles: float) -> bool:
    """Returns true if a kernel runs long enough to be divided among threads."""
    return estimated_cycles > isa.rates.sharing
