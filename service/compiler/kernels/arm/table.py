"""A table of 256 bytes in sixteen registers: `tbl` looks up among 64, and gives 0 for what lies beyond; `tbx` looks up
among the next 64 and leaves such a byte as it is."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat

ENTRIES = 256
_BYTES, _PARTS = 16, 4
_DTYPE = f"int8x{_BYTES}"


@dataclass(frozen=True)
class Lookup:
    """A table in registers, as a function of vectors.

    Attributes:
        parts: the table's vectors.
    """

    program: Program
    parts: tuple[Expr, ...]

    @staticmethod
    def of(program: Program, entries: Buffer, offset: Expr = 0) -> Lookup:
        """The table that lies in a buffer."""
        starts = range(0, ENTRIES, _BYTES)
        parts = (program.bind(bits(_DTYPE, load(entries, offset + start, _BYTES)), _DTYPE) for start in starts)
        return Lookup(program, tuple(parts))

    def __call__(self, vector: Expr, lanes: int) -> Expr:
        """The values of some bytes; fewer than a vector holds are repeated to fill one."""
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
