"""A lookup table of 256 bytes in sixteen registers.

`tbl` looks up bytes in a part of 64 bytes, and returns 0 for indices beyond the part. For each of the next parts, `tbx`
looks up bytes too, and does not change a byte whose index is beyond the part.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat

ENTRIES = 256
_BYTES, _PARTS = 16, 4
_DTYPE = f"int8x{_BYTES}"


@dataclass(frozen=True)
class Lookup:
    """A lookup table in registers. Calling it looks up a vector.

    Attributes:
        parts: the vectors of the table.
    """

    program: Program
    parts: tuple[Expr, ...]

    @staticmethod
    def of(program: Program, entries: Buffer, offset: Expr = 0) -> Lookup:
        """Loads the table from a buffer."""
        starts = range(0, ENTRIES, _BYTES)
        parts = (program.bind(bits(_DTYPE, load(entries, offset + start, _BYTES)), _DTYPE) for start in starts)
        return Lookup(program, tuple(parts))

    def __call__(self, vector: Expr, lanes: int) -> Expr:
        """Looks up the bytes of `vector`. If they do not fill a register, they are repeated first."""
        if lanes < _BYTES:
            repeated = tirx.Shuffle([vector] * (_BYTES // lanes), [tirx.const(lane, "int32") for lane in range(_BYTES)])
            return shuffle(self(repeated, _BYTES), range(lanes))
        index = self.program.bind(bits(_DTYPE, vector), _DTYPE)
        found = intrinsic(_DTYPE, "llvm.aarch64.neon.tbl4", *self.parts[:_PARTS], index)
        for first in range(_PARTS, len(self.parts), _PARTS):
            index = self.program.bind(index - splat(tirx.const(_PARTS * _BYTES, "int8"), _BYTES), _DTYPE)
            among = self.parts[first : first + _PARTS]
            found = intrinsic(_DTYPE, "llvm.aarch64.neon.tbx4", self.program.bind(found, _DTYPE), *among, index)
        return bits(f"uint8x{_BYTES}", found)
