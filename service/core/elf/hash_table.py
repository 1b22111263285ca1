"""The GNU hash table (DT_GNU_HASH), in which the loader looks up symbols. glibc reads it in `dl-lookup.c`."""

from __future__ import annotations

import struct

from service.core.elf.reader import ElfError

_HEADER = struct.Struct("<IIII")
_LAST = 1  # this bit is set in the last hash of a chain
_MOST = 1 << 17


def count_symbols(table: bytes) -> int:
    """Returns the number of entries in the symbol table. No other part of a library contains this number.

    Args:
        table: the bytes from the start of the hash table to the end of its segment.

    Raises:
        ElfError: a look-up could read outside the table.
    """
    if len(table) < _HEADER.size:
        raise ElfError("its hash table is damaged")
    buckets: int
    first: int
    buckets, first, words, _shift = _HEADER.unpack_from(table)
    chains_at = _HEADER.size + 8 * words + 4 * buckets
    # The number of words in the filter has to be a power of two, because the loader masks the index.
    if not 0 < buckets <= _MOST or not 0 < words <= _MOST or words & words - 1 or chains_at > len(table):
        raise ElfError("its hash table is damaged")
    starts: list[int] = [
        start for (start,) in struct.iter_unpack("<I", table[chains_at - 4 * buckets : chains_at]) if start
    ]
    if not starts:
        return first
    if min(starts) < first or max(starts) > _MOST:
        raise ElfError("its hash table is damaged")
    # Chains are stored one after another, so every look-up ends no later than the end of the last chain.
    position = max(starts)
    while True:
        at = chains_at + 4 * (position - first)
        if at + 4 > len(table):
            raise ElfError("its hash table is damaged")
        if struct.unpack_from("<I", table, at)[0] & _LAST:
            return position + 1
        position += 1
