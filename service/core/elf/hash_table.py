"""The GNU hash table, in which the loader looks up symbols: DT_GNU_HASH, as glibc's `dl-lookup.c` reads it."""

from __future__ import annotations

import struct

from service.core.elf.reader import ElfError

_HEADER = struct.Struct("<IIII")
_LAST = 1  # the lowest bit of a hash ends a chain
_MOST = 1 << 17


def count_symbols(table: bytes) -> int:
    """The number of entries in the symbol table, which nothing else in a library gives.

    Args:
        table: from its first byte to the end of the segment.

    Raises:
        ElfError: a look-up could leave the table.
    """
    if len(table) < _HEADER.size:
        raise ElfError("its hash table is damaged")
    buckets: int
    first: int
    buckets, first, words, _shift = _HEADER.unpack_from(table)
    chains_at = _HEADER.size + 8 * words + 4 * buckets
    # The filter is indexed by a mask.
    if not 0 < buckets <= _MOST or not 0 < words <= _MOST or words & words - 1 or chains_at > len(table):
        raise ElfError("its hash table is damaged")
    starts: list[int] = [
        start for (start,) in struct.iter_unpack("<I", table[chains_at - 4 * buckets : chains_at]) if start
    ]
    if not starts:
        return first
    if min(starts) < first or max(starts) > _MOST:
        raise ElfError("its hash table is damaged")
    # Chains lie one behind the other, so every look-up ends where the last one does, or before.
    place = max(starts)
    while True:
        at = chains_at + 4 * (place - first)
        if at + 4 > len(table):
            raise ElfError("its hash table is damaged")
        if struct.unpack_from("<I", table, at)[0] & _LAST:
            return place + 1
        place += 1
