"""Any function of one byte: a table of 256, looked up a vector at a time.

AVX-512 without VBMI permutes words, not bytes. So bytes j and j + 128 of the table share a word, two `vpermi2w` find
the words of half the bytes of a vector among 128, and the highest bit of a byte says which half of its word is meant.
AVX2 looks up the low four bits in sixteen tables (`vpshufb`) and takes one of the results, bit by bit of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Array, Declined, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat
from service.compiler.kernels.walk import View, Walk, map_bytes
from service.compiler.kernels.x86.isa import Isa

ENTRIES = 256


def table(isa: Isa, source: Image, destination: Image, values: Array, zero_point: int, *, parallel: bool) -> Kernel:
    """Each byte of an image replaced by `values[byte]`.

    Args:
        values: `[256] uint8`, of stored values and as stored.
        zero_point: what the destination's halo holds, as stored.
        parallel: whether runs of pixels are shared between threads.

    Raises:
        Declined: an image is packed.
    """
    require_blocks(isa, source, destination)
    program = Program()
    read = program.parameter("source", "uint8", source.size_bytes)
    constants = [Lookup.arranged(isa, values), np.array([zero_point], np.uint8)]
    entries = program.parameter("table", "uint8", ENTRIES)
    fill = program.parameter("zero_point", "uint8", 1)
    written = program.parameter("destination", "uint8", destination.size_bytes)
    extents = (destination.batch, destination.blocks, destination.height, destination.width)
    walk = Walk(extents, [View.of(source), View.of(destination)], isa.lanes, parallel=parallel)
    with walk.runs(program) as run:
        plane = run.image * destination.blocks + run.block
        fill_halo(program, isa.bytes, written, destination, load(fill, 0, 1), plane=plane, when=run.first)
        places = [(read, run.starts[0])], (written, run.starts[1])
        map_bytes(program, isa.bytes, *places, run.pixels * isa.lanes, Lookup.of(program, isa, entries))
    return Kernel("table", program.function(), tuple(constants), destination.size_bytes)


def require_blocks(isa: Isa, *images: Image) -> None:
    """Checks the layout of a kernel's images.

    Raises:
        Declined: an image is packed.
    """
    if any(image.block != isa.lanes for image in images):
        raise Declined(f"an image is not in blocks of {isa.lanes} channels")


@dataclass(frozen=True)
class Lookup:
    """A table in registers, as a function of vectors.

    Attributes:
        parts: vectors of the table.
    """

    program: Program
    isa: Isa
    parts: tuple[Expr, ...]

    @staticmethod
    def arranged(isa: Isa, values: Array) -> Array:
        """`values` in the order in which they are loaded."""
        assert values.shape == (ENTRIES,)
        assert values.dtype == np.uint8
        return values.reshape(2, -1).T.reshape(-1) if isa.lanes == 16 else values

    @staticmethod
    def of(program: Program, isa: Isa, entries: Buffer, offset: Expr = 0) -> Lookup:
        """The table that lies, `arranged`, in a buffer."""
        parts = []
        for start in range(0, ENTRIES, isa.bytes if isa.lanes == 16 else 16):
            if isa.lanes == 16:
                parts.append(program.bind(bits("int16x32", load(entries, offset + start, 64)), "int16x32"))
            else:
                twice = _repeated(load(entries, offset + start, 16), 16, 2)
                parts.append(program.bind(bits("int8x32", twice), "int8x32"))
        return Lookup(program, isa, tuple(parts))

    def __call__(self, vector: Expr, lanes: int) -> Expr:
        """The values of some bytes; fewer than a vector holds are repeated to fill one."""
        size = self.isa.bytes
        if lanes == size:
            return self._words(vector) if self.isa.lanes == 16 else self._nibbles(vector)
        return shuffle(self(_repeated(vector, lanes, size // lanes), size), range(lanes))

    def _words(self, vector: Expr) -> Expr:
        even_bytes = self.program.bind(bits("uint16x32", vector), "uint16x32")
        even, odd = (self._word(at) for at in (even_bytes, even_bytes >> _splat("uint16", 8, 32)))
        byte = _splat("uint16", 8, 32)
        low = (even & _splat("uint16", 0xFF, 32)) | (odd << byte)
        high = (even >> byte) | (odd & _splat("uint16", 0xFF00, 32))
        return self._choose(vector, bits("uint8x64", high), bits("uint8x64", low), 64)

    def _word(self, at: Expr) -> Expr:
        """The words at the low seven bits of each word of `at`; the others may be anything."""
        at = self.program.bind(at, "uint16x32")
        name, index = "llvm.x86.avx512.vpermi2var.hi.512", bits("int16x32", at)
        first, second = (intrinsic("int16x32", name, self.parts[part], index, self.parts[part + 1]) for part in (0, 2))
        beyond = tirx.NE(at & _splat("uint16", 64, 32), _splat("uint16", 0, 32))
        return self.program.bind(bits("uint16x32", tirx.Select(beyond, second, first)), "uint16x32")

    def _nibbles(self, vector: Expr) -> Expr:
        low = self.program.bind(bits("int8x32", vector & _splat("uint8", 15, 32)), "int8x32")
        found = [intrinsic("int8x32", "llvm.x86.avx2.pshuf.b", part, low) for part in self.parts]
        bit = [self.program.bind(vector, "uint8x32")]  # each of the four high bits, in the place of the sign
        while len(bit) < 4:
            bit.append(self.program.bind(bit[-1] + bit[-1], "uint8x32"))
        while bit:
            chooser = bit.pop()
            pairs = zip(found[0::2], found[1::2], strict=True)
            found = [self.program.bind(self._choose(chooser, one, zero, 32), "int8x32") for zero, one in pairs]
        return bits("uint8x32", found[0])

    @staticmethod
    def _choose(sign: Expr, one: Expr, zero: Expr, lanes: int) -> Expr:
        """`one` where the highest bit of `sign` is set, else `zero`."""
        return tirx.Select(bits(f"int8x{lanes}", sign) < _splat("int8", 0, lanes), one, zero)


def _splat(dtype: str, value: int, lanes: int) -> Expr:
    return splat(tirx.const(value, dtype), lanes)


def _repeated(vector: Expr, lanes: int, times: int) -> Expr:
    return tirx.Shuffle([vector] * times, [tirx.const(lane, "int32") for lane in range(lanes * times)])
