"""Reads the tables of an ELF file: headers, sections, segments, strings, symbols.

Every offset is checked to be inside the file before it is used, and the numbers of entries and the lengths of names are
limited by the constants below.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_IDENTITY = b"\x7fELF\x02\x01\x01\x00" + bytes(8)  # 64 bits, little-endian, version 1, System V
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_FLAGS = {
    243: 0b101
}  # the flags by machine: RISC-V with compressed instructions, and the ABI with doubles in registers
_SYMBOL = struct.Struct("<IBBHQQ")
SYMBOL_BYTES = _SYMBOL.size

_MOST_SECTIONS, _MOST_SEGMENTS, _MOST_SYMBOLS = 4096, 64, 1 << 17
_LONGEST_NAME = 1024

RELOCATABLE, SHARED = 1, 3


class ElfError(ValueError):
    """The file is damaged, or contains something that is not allowed. The message describes it."""


class Section(NamedTuple):
    """One entry of the section header table (gABI, `Elf64_Shdr`)."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    entry_bytes: int


class Segment(NamedTuple):
    """One entry of the program header table (gABI, `Elf64_Phdr`)."""

    kind: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int
    alignment: int

    @property
    def end(self) -> int:
        """The address after the segment's last byte."""
        return self.address + self.memory_bytes

    def holds(self, address: int, size: int) -> bool:
        """Returns true if all `size` bytes from `address` are in the segment."""
        return self.address <= address and address + size <= self.end

    def overlaps(self, address: int, size: int) -> bool:
        """Returns true if any of the `size` bytes from `address` is in the segment."""
        return address < self.end and self.address < address + size


class Symbol(NamedTuple):
    """One entry of a symbol table (gABI, `Elf64_Sym`)."""

    name: str
    binding: int
    kind: int
    section: int
    value: int
    size: int


class ElfFile:
    """The tables of one file.

    Args:
        data: the whole file.

    Raises:
        ElfError: the file is not a 64-bit little-endian ELF file, or a table is not inside the file.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        if len(data) < _HEADER.size or data[:16] != _IDENTITY:
            raise ElfError("it is not an ELF object of 64 bits")
        (
            _, self.kind, self.machine, version, self.entry, self.segments_at, sections_at,
            flags, header_bytes, segment_bytes, segments, section_bytes, sections, names,
        ) = _HEADER.unpack_from(data)  # fmt: skip
        if version != 1 or flags != _FLAGS.get(self.machine, 0) or header_bytes != _HEADER.size:
            raise ElfError("its header is damaged")
        if (segments and segment_bytes != _SEGMENT.size) or (sections and section_bytes != _SECTION.size):
            raise ElfError("its header tables have entries of an unexpected size")
        if sections > _MOST_SECTIONS or segments > _MOST_SEGMENTS:
            raise ElfError(f"it has {sections} sections and {segments} segments")
        self.segments = [Segment(*entry) for entry in self._segments(segments)]
        self.sections = self._sections(sections_at, sections, names)

    def range(self, offset: int, size: int, what: str) -> bytes:
        """Returns `size` bytes of the file from `offset`.

        Raises:
            ElfError: the bytes are not all inside the file.
        """
        if offset > len(self._data) or size > len(self._data) - offset:
            raise ElfError(f"{what} is outside the file")
        return self._data[offset : offset + size]

    def symbols(self, table: bytes, strings: bytes) -> list[Symbol]:
        """Returns the entries of a symbol table, including the first one, which is always the null symbol.

        Raises:
            ElfError: a name is not inside `strings`, or there are too many symbols.
        """
        if len(table) % _SYMBOL.size or len(table) > _MOST_SYMBOLS * _SYMBOL.size:
            raise ElfError(f"its symbol table has {len(table)} bytes")
        return [
            Symbol(string_at(strings, name), info >> 4, info & 15, section, value, size)
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(table)
        ]

    def _segments(self, count: int) -> Iterator[tuple[int, ...]]:
        table = self.range(self.segments_at, count * _SEGMENT.size, "its program header table")
        for kind, flags, offset, address, _, file_bytes, memory_bytes, alignment in _SEGMENT.iter_unpack(table):
            yield kind, flags, offset, address, file_bytes, memory_bytes, alignment

    def _sections(self, at: int, count: int, names: int) -> list[Section]:
        entries = list(_SECTION.iter_unpack(self.range(at, count * _SECTION.size, "its section header table")))
        if not entries:
            return []
        if names >= len(entries):
            raise ElfError("its section names are outside the section header table")
        strings = self.range(entries[names][4], entries[names][5], "the table of its section names")
        return [
            Section(string_at(strings, name), kind, flags, offset, size, link, entry_bytes)
            for name, kind, flags, _, offset, size, link, _, _, entry_bytes in entries
        ]


def string_at(strings: bytes, offset: int) -> str:
    """Returns the name that begins at `offset` in a string table.

    Raises:
        ElfError: the name does not end inside the table, is too long, or is not ASCII.
    """
    end = strings.find(b"\0", offset, offset + _LONGEST_NAME)
    if offset >= len(strings) or end < 0:
        raise ElfError("a name is outside its string table, or is too long")
    try:
        return strings[offset:end].decode("ascii")
    except UnicodeDecodeError as error:
        raise ElfError("a name is not ASCII") from error
