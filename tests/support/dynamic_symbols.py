"""Reads the dynamic symbols of a shared library."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from service.core.elf.reader import ElfFile

_DT_NEEDED = 1


@dataclass(frozen=True)
class DynamicSymbols:
    """The names that a library defines, the names that it imports, and the libraries that it needs."""

    defined: set[str]
    wanted: set[str]
    libraries: set[str]


def dynamic_symbols(library: Path) -> DynamicSymbols:
    data = library.read_bytes()
    file = ElfFile(data)
    sections = {section.name: section for section in file.sections}
    table, strings, dynamic = (
        data[section.offset : section.offset + section.size]
        for section in (sections[".dynsym"], sections[".dynstr"], sections[".dynamic"])
    )
    symbols = file.symbols(table, strings)[1:]
    needed = {
        strings[value : strings.index(b"\0", value)].decode()
        for tag, value in struct.iter_unpack("<QQ", dynamic)
        if tag == _DT_NEEDED
    }
    return DynamicSymbols(
        {each.name for each in symbols if each.section}, {each.name for each in symbols if not each.section}, needed
    )
