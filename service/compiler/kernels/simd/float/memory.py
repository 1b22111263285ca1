"""Copies and converts operands of float products, and adds borders of zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.layout import Halo
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, splat
from service.compiler.kernels.simd.float.factors import Factors, Place, widest
from service.compiler.kernels.vector.lanes import Lanes


@dataclass(frozen=True)
class Padded:
    """An image `[N, H, W, C]` to which a border of zeros is added before it is read."""

    shape: tuple[int, int, int, int]
    halo: Halo

    @property
    def extents(self) -> tuple[int, int]:
        """The rows and columns including the border."""
        (_, height, width, _), (top, left, bottom, right) = self.shape, self.halo.sides
        return height + top + bottom, width + left + right

    @property
    def size(self) -> int:
        height, width = self.extents
        return self.shape[0] * height * width * self.shape[3]


def pad(lanes: Lanes, factors: Factors, source: Buffer, memory: Buffer, padded: Padded, *, parallel: bool) -> None:
    """Copies an image to memory with its border of zeros, converted to the type of `factors`."""
    (batch, height, width, channels), (top, left, bottom, right) = padded.shape, padded.halo.sides
    rows, columns = padded.extents
    program, line, vector = lanes.program, columns * channels, lanes.isa.lanes
    with program.loop(batch * height, "line", parallel=parallel) as at:
        y = program.bind(at % height)
        to = program.bind((at // height * rows + y + top) * line)
        clear(program, vector, (memory, to), left * channels)
        inside = (memory, to + left * channels)
        factors.copy(lanes, (source, at * (width * channels)), inside, width * channels)
        clear(program, vector, (memory, to + (left + width) * channels), right * channels)
    with program.loop(batch, "image") as image:
        clear(program, vector, (memory, image * (rows * line)), top * line)
        clear(program, vector, (memory, (image * rows + top + height) * line), bottom * line)


def clear(program: Program, lanes: int, destination: Place, size: int) -> None:
    """Writes zeros to `size` elements."""
    if not size:
        return
    width, zero = widest(lanes, size), tirx.const(0, str(destination[0].dtype))
    with program.loop(-(-size // width), "part") as part:
        at = program.bind(at_most(part * width, size - width))
        program.store(destination[0], destination[1] + at, splat(zero, width) if width > 1 else zero, width)


def transposed(lanes: Lanes, vectors: Sequence[Expr], dtype: str) -> list[Expr]:
    """Transposes a square of vectors with elements of `dtype`.

    Each step exchanges halves, then quarters …, between pairs of vectors (Eklundh 1972).
    """
    count, found = len(vectors), list(vectors)

    def mixed(pair: tuple[Expr, Expr], order: list[int]) -> Expr:
        return lanes.keep(tirx.Shuffle(list(pair), [tirx.const(at, "int32") for at in order]), dtype)

    distance = count // 2
    while distance:
        for one in (number for number in range(count) if not number & distance):
            pair = found[one], found[one + distance]
            upper = [lane + count - distance if lane & distance else lane for lane in range(count)]
            lower = [lane + count if lane & distance else lane + distance for lane in range(count)]
            found[one], found[one + distance] = mixed(pair, upper), mixed(pair, lower)
        distance //= 2
    return found
