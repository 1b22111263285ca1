"""Checks an object file against the allow lists before the linker reads it."""

from __future__ import annotations

import re

from service.core.elf import names
from service.core.elf.reader import RELOCATABLE, SYMBOL_BYTES, ElfError, ElfFile, Symbol

_LOCAL, _GLOBAL, _WEAK = 0, 1, 2
_NOTYPE, _OBJECT, _FUNC, _SECTION, _FILE = range(5)
_LOCAL_KINDS = {_NOTYPE, _OBJECT, _FUNC, _SECTION, _FILE}
_GLOBAL_KINDS = {_NOTYPE, _OBJECT, _FUNC}
_KINDS = {6: "thread-local", 10: "an indirect function"}
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
# The name of a symbol that marks the start of data. Clang's assembler for RISC-V also writes one that is in no section.
_DATA = "$d"


def check_object(data: bytes, architecture: str, defines: str | None = None) -> None:
    """Refuses an object that could make the linker or the loader do more than combine code and data.

    Args:
        data: the whole file.
        architecture: the architecture of the target.
        defines: the name of the one function that the object may define; it may also define that function's GPU code
            for several compute capabilities. None to allow any function.

    Raises:
        ElfError: the object is damaged, or contains something that is not allowed.
    """
    file = ElfFile(data)
    if file.kind != RELOCATABLE or file.segments:
        raise ElfError("it is not a relocatable object")
    if file.machine != names.MACHINES[architecture]:
        raise ElfError(f"it is not code for {architecture}")
    _check_sections(file)
    tables = [section for section in file.sections if section.kind == names.SYMTAB]
    if len(tables) != 1 or tables[0].entry_bytes != SYMBOL_BYTES or tables[0].link >= len(file.sections):
        raise ElfError("it has no symbol table, or a damaged one")
    strings = file.sections[tables[0].link]
    symbols = file.symbols(
        file.range(tables[0].offset, tables[0].size, "its symbol table"),
        file.range(strings.offset, strings.size, "its string table"),
    )
    for symbol in symbols[1:]:
        _check_symbol(symbol, len(file.sections))
    if defines is not None:
        _check_definitions(symbols, defines)


def _check_sections(file: ElfFile) -> None:
    if not file.sections or file.sections[0].kind:
        raise ElfError("its section header table is damaged")
    for section in file.sections[1:]:
        if not names.is_object_section(section.name, section.kind, section.flags):
            raise ElfError(f"it has a section {section.name} of type {section.kind:#x} and flags {section.flags:#x}")
        if section.kind != names.NOBITS:
            file.range(section.offset, section.size, f"section {section.name}")


def _check_symbol(symbol: Symbol, sections: int) -> None:
    is_local = symbol.binding == _LOCAL
    if symbol.kind not in (_LOCAL_KINDS if is_local else _GLOBAL_KINDS):
        raise ElfError(f"symbol {symbol.name} is {_KINDS.get(symbol.kind, f'of kind {symbol.kind}')}")
    is_note = symbol.kind == _FILE or (is_local and symbol.name == _DATA)
    if symbol.section >= sections and not (symbol.section == _ABSOLUTE and is_note):
        raise ElfError(f"symbol {symbol.name} is in none of its sections")
    if is_local:
        return
    if symbol.binding not in (_GLOBAL, _WEAK):
        raise ElfError(f"symbol {symbol.name} has binding {symbol.binding}")
    if symbol.section == _UNDEFINED:
        if symbol.name not in names.IMPORTS:
            raise ElfError(f"it needs {symbol.name}, which compiled code may not call")
    elif not names.is_export(symbol.name):
        raise ElfError(f"it defines {symbol.name}, which compiled code may not define")


def _check_definitions(symbols: list[Symbol], function: str) -> None:
    found = {symbol.name for symbol in symbols[1:] if symbol.binding != _LOCAL and symbol.section != _UNDEFINED}
    own = {name for name in found if not names.is_shared(name)}
    if own != {function} and not (own and all(_is_of_gpu(name, function) for name in own)):
        raise ElfError(f"it defines {', '.join(sorted(own)) or 'nothing'} instead of {function}")


def _is_of_gpu(name: str, function: str) -> bool:
    """Returns true if `name` is `function`'s code for one compute capability, such as `octet_conv.sm_80`."""
    return re.fullmatch(rf"{re.escape(function)}\.sm_[0-9]{{2,3}}", name) is not None
