"""Checks a shared library against the allow lists before the dynamic loader maps it.

The loader reads the program headers and the dynamic section, which decide which bytes it maps, which functions it calls
and where it writes. The checks cover both, and also the section headers, which the loader does not read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from service.core.elf import names
from service.core.elf.hash_table import count_symbols
from service.core.elf.image import Image
from service.core.elf.reader import SHARED, SYMBOL_BYTES, ElfError, ElfFile, Symbol

_DYNAMIC_ENTRY, _RELOCATION = struct.Struct("<QQ"), struct.Struct("<QQq")
_MOST_ENTRIES, _MOST_RELOCATION_BYTES = 64, 24 << 17

# Tags of entries in the dynamic section that only give the addresses and sizes of tables: gABI, chapter 5, "Dynamic
# Section".
_NULL, _PLTRELSZ, _PLTGOT, _STRTAB, _SYMTAB, _RELA, _RELASZ, _RELAENT = 0, 2, 3, 5, 6, 7, 8, 9
_STRSZ, _SYMENT, _PLTREL, _JMPREL, _FLAGS = 10, 11, 20, 23, 30
_GNU_HASH, _RELACOUNT, _FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF9, 0x6FFFFFFB
# Tags whose value is fixed: sizes of entries, the type of relocations, and flags (DF_BIND_NOW, DF_1_NOW).
_FIXED: Mapping[int, int] = {_RELAENT: 24, _SYMENT: SYMBOL_BYTES, _PLTREL: _RELA, _FLAGS: 8, _FLAGS_1: 1}
# The tags of addresses and sizes, which are checked when they are used.
_PLACES = {_PLTRELSZ, _PLTGOT, _STRTAB, _SYMTAB, _RELA, _RELASZ, _STRSZ, _JMPREL, _GNU_HASH, _RELACOUNT}
_NEEDED = {_STRTAB, _SYMTAB, _STRSZ, _SYMENT, _GNU_HASH}
_REFUSED: Mapping[int, str] = {
    1: "needs another library (DT_NEEDED)",
    12: "has an initializer (DT_INIT)",
    13: "has a finalizer (DT_FINI)",
    15: "sets a search path for libraries (DT_RPATH)",
    22: "changes its own code (DT_TEXTREL)",
    25: "has initializers (DT_INIT_ARRAY)",
    26: "has finalizers (DT_FINI_ARRAY)",
    29: "sets a search path for libraries (DT_RUNPATH)",
    32: "has initializers (DT_PREINIT_ARRAY)",
    0x6FFFFEFB: "names an auditor (DT_DEPAUDIT)",
    0x6FFFFEFC: "names an auditor (DT_AUDIT)",
    0x7FFFFFFD: "stands for another library (DT_AUXILIARY)",
    0x7FFFFFFF: "stands for another library (DT_FILTER)",
}


@dataclass(frozen=True)
class _Relocations:
    """The types of relocations, by the numbers in the ABI supplement of an architecture.

    Attributes:
        relative: the type that stores an address inside the library.
        symbolic: the types that store the address of a symbol.
        indirect: the type that calls a function of the library and stores its result.
    """

    relative: int
    symbolic: frozenset[int]
    indirect: int


# The types by machine. The symbolic ones are 64, GLOB_DAT and JUMP_SLOT on x86-64; ABS64, GLOB_DAT and JUMP_SLOT on
# AArch64; 64 and JUMP_SLOT on RISC-V.
_TYPES: Mapping[int, _Relocations] = {
    62: _Relocations(8, frozenset({1, 6, 7}), 37),
    183: _Relocations(1027, frozenset({257, 1025, 1026}), 1032),
    243: _Relocations(3, frozenset({2, 5}), 58),
}

_GLOBAL, _WEAK = 1, 2
_NOTYPE, _OBJECT, _FUNC, _IFUNC = 0, 1, 2, 10
_POINTER_BYTES = 8


def check_library(data: bytes, architecture: str) -> None:
    """Refuses a library if loading it could run code of the library, or access memory outside it.

    Args:
        data: the whole file.
        architecture: the architecture of the target.

    Raises:
        ElfError: the library is damaged, or contains something that is not allowed.
    """
    file = ElfFile(data)
    if file.kind != SHARED or file.entry:
        raise ElfError("it is not a shared library")
    if file.machine != names.MACHINES[architecture]:
        raise ElfError(f"it is not code for {architecture}")
    image = Image(file)
    dynamic = _dynamic(image)
    tables = _tables(image, dynamic)
    for symbol in tables.symbols[1:]:
        _check_symbol(symbol, image)
    _check_relocations(tables.relocations, tables.symbols, image, dynamic.get(_RELACOUNT, 0))
    _check_relocations(tables.jumps, tables.symbols, image)
    for section in file.sections[1:]:
        if not names.is_library_section(section.name, section.kind, section.flags):
            raise ElfError(f"it has a section {section.name} of type {section.kind:#x} and flags {section.flags:#x}")


@dataclass(frozen=True)
class _Tables:
    """The tables that the dynamic section points to."""

    symbols: list[Symbol]
    relocations: bytes
    jumps: bytes


def _dynamic(image: Image) -> dict[int, int]:
    """Returns the entries of the dynamic section by tag, after checking that each is allowed and occurs once."""
    table = image.content(image.dynamic)
    entries: dict[int, int] = {}
    for count, (tag, value) in enumerate(_DYNAMIC_ENTRY.iter_unpack(table[: len(table) // 16 * 16])):
        if tag == _NULL:
            break
        if tag in _REFUSED:
            raise ElfError(f"it {_REFUSED[tag]}")
        if tag in entries or count >= _MOST_ENTRIES or (tag not in _PLACES and _FIXED.get(tag) != value):
            raise ElfError(f"its dynamic section has an entry {tag:#x} of {value:#x}")
        entries[tag] = value
    else:
        raise ElfError("its dynamic section has no end marker")
    if not entries.keys() >= _NEEDED:
        raise ElfError("its dynamic section lacks a table")
    return entries


def _tables(image: Image, dynamic: Mapping[int, int]) -> _Tables:
    count = count_symbols(image.from_address(dynamic[_GNU_HASH], "its hash table"))
    table = image.at(dynamic[_SYMTAB], count * SYMBOL_BYTES, "its symbol table")
    strings = image.at(dynamic[_STRTAB], dynamic[_STRSZ], "its string table")
    if not strings.endswith(b"\0"):
        raise ElfError("its string table does not end with a zero byte")
    # The loader reserves the first three entries of the table.
    if _PLTGOT in dynamic and not image.is_data(dynamic[_PLTGOT], 3 * _POINTER_BYTES):
        raise ElfError("its table of jumps is not in its data")
    return _Tables(
        image.file.symbols(table, strings),
        image.at(dynamic.get(_RELA, 0), dynamic.get(_RELASZ, 0), "its relocation table"),
        image.at(dynamic.get(_JMPREL, 0), dynamic.get(_PLTRELSZ, 0), "its table of jumps"),
    )


def _check_symbol(symbol: Symbol, image: Image) -> None:
    if symbol.kind == _IFUNC:
        raise ElfError(f"symbol {symbol.name} is an indirect function")
    if symbol.kind not in (_NOTYPE, _OBJECT, _FUNC) or symbol.binding not in (_GLOBAL, _WEAK):
        raise ElfError(f"symbol {symbol.name} is of kind {symbol.kind} and binding {symbol.binding}")
    if symbol.section == 0:
        if symbol.name not in names.IMPORTS or symbol.value:
            raise ElfError(f"it needs {symbol.name}, which compiled code may not call")
        return
    if not names.is_export(symbol.name):
        raise ElfError(f"it defines {symbol.name}, which compiled code may not define")
    if symbol.section >= 0xFF00 or not image.holds(symbol.value, symbol.size):
        raise ElfError(f"symbol {symbol.name} is outside the library")
    if names.is_filled_in(symbol.name) and not image.is_data(symbol.value, _POINTER_BYTES):
        raise ElfError(f"symbol {symbol.name} is not in its data")


def _check_relocations(table: bytes, symbols: list[Symbol], image: Image, relative: int = 0) -> None:
    """Checks that each relocation has an allowed type and writes inside the library's data.

    Args:
        relative: the number of relocations, at the start of the table, that the loader treats as relative ones without
            reading their types.
    """
    if len(table) % _RELOCATION.size or not relative * _RELOCATION.size <= len(table) <= _MOST_RELOCATION_BYTES:
        raise ElfError(f"a relocation table has {len(table)} bytes")
    types = _TYPES[image.file.machine]
    for number, (offset, info, addend) in enumerate(_RELOCATION.iter_unpack(table)):
        symbol, kind = info >> 32, info & 0xFFFFFFFF
        if kind == types.indirect:
            raise ElfError("it has an indirect function (IRELATIVE relocation)")
        if kind == types.relative:
            is_known = symbol == 0 and image.holds(addend, 0)
        else:
            is_known = number >= relative and kind in types.symbolic and 0 < symbol < len(symbols)
        if not is_known:
            raise ElfError(f"it has a relocation of type {kind}")
        if not image.is_data(offset, _POINTER_BYTES) or image.dynamic.overlaps(offset, _POINTER_BYTES):
            raise ElfError(f"a relocation writes to {offset:#x}, which is not its data")
