"""A lookup table of 256 bytes in registers.

AVX-512 without VBMI can permute 16-bit words, but not bytes. So bytes j and j + 128 of the table share a word, and the
table has 128 words. Two `vpermi2w` look up the words for every other byte of a vector. The highest bit of a byte then
selects the half of its word. AVX2 looks up the low four bits of a byte in sixteen tables (`vpshufb`), and selects one
of the sixteen results by the high four bits, one bit at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat
from service.core.models.arrays import Array

ENTRIES = 256


def arranged(lanes: int, values: Array) -> Array:
    """Returns `values` in the order in which `Lookup.of` loads them, for vectors of `lanes` 32-bit lanes."""
    assert values.shape == (ENTRIES,)
    assert values.dtype == np.uint8
    return values.reshape(2, -1).T.reshape(-1) if lanes == 16 else values


@dataclass(frozen=True)
class Lookup:
    """A lookup table in registers. Calling it looks up a vector.

    Attributes:
        lanes: the number of 32-bit lanes of a vector.
        parts: the vectors of the table.
    """

    program: Program
    lanes: int
    parts: tuple[Expr, ...]

    @staticmethod
    def of(program: Program, lanes: int, entries: Buffer, offset: Expr = 0) -> Lookup:
        """Loads a table in the order of `arranged` from a buffer."""
        parts = []
        for start in range(0, ENTRIES, 64 if lanes == 16 else 16):
            if lanes == 16:
                parts.append(program.bind(bits("int16x32", load(entries, offset + start, 64)), "int16x32"))
            else:
                twice = _repeated(load(entries, offset + start, 16), 16, 2)
                parts.append(program.bind(bits("int8x32", twice), "int8x32"))
        return Lookup(program, lanes, tuple(parts))

    def __call__(self, vector: Expr, lanes: int) -> Expr:
        """Looks up the bytes of `vector`. If the vector does not fill a register, its bytes are repeated first."""
        size = 4 * self.lanes
        if lanes == size:
            return self._words(vector) if self.lanes == 16 else self._nibbles(vector)
        return shuffle(self(_repeated(vector, lanes, size // lanes), size), range(lanes))

    def _words(self, vector: Expr) -> Expr:
        even_bytes = self.program.bind(bits("uint16x32", vector), "uint16x32")
        even, odd = (self._word(at) for at in (even_bytes, even_bytes >> _splat("uint16", 8, 32)))
        byte = _splat("uint16", 8, 32)
        low = (even & _splat("uint16", 0xFF, 32)) | (odd << byte)
        high = (even >> byte) | (odd & _splat("uint16", 0xFF00, 32))
        return self._choose(vector, bits("uint8x64", high), bits("uint8x64", low), 64)

    def _word(self, at: Expr) -> Expr:
        """Looks up the table's word for the low seven bits of each word of `at`. The other bits are ignored."""
        at = self.program.bind(at, "uint16x32")
        name, index = "llvm.x86.avx512.vpermi2var.hi.512", bits("int16x32", at)
        first, second = (intrinsic("int16x32", name, self.parts[part], index, self.parts[part + 1]) for part in (0, 2))
        beyond = tirx.NE(at & _splat("uint16", 64, 32), _splat("uint16", 0, 32))
        return self.program.bind(bits("uint16x32", tirx.Select(beyond, second, first)), "uint16x32")

    def _nibbles(self, vector: Expr) -> Expr:
        low = self.program.bind(bits("int8x32", vector & _splat("uint8", 15, 32)), "int8x32")
        found = [intrinsic("int8x32", "llvm.x86.avx2.pshuf.b", part, low) for part in self.parts]
        bit = [self.program.bind(vector, "uint8x32")]  # each of the four high bits, shifted to the sign bit
        while len(bit) < 4:
            bit.append(self.program.bind(bit[-1] + bit[-1], "uint8x32"))
        while bit:
            chooser = bit.pop()
            pairs = zip(found[0::2], found[1::2], strict=True)
            found = [self.program.bind(self._choose(chooser, one, zero, 32), "int8x32") for zero, one in pairs]
        return bits("uint8x32", found[0])

    @staticmethod
    def _choose(sign: Expr, one: Expr, zero: Expr, lanes: int) -> Expr:
        """Selects `one` in lanes in which the highest bit of `sign` is set, else `zero`."""
        return tirx.Select(bits(f"int8x{lanes}", sign) < _splat("int8", 0, lanes), one, zero)


def _splat(dtype: str, value: int, lanes: int) -> Expr:
    return splat(tirx.const(value, dtype), lanes)


def _repeated(vector: Expr, lanes: int, times: int) -> Expr:
    return tirx.Shuffle([vector] * times, [tirx.const(lane, "int32") for lane in range(lanes * times)])
