"""Allow lists of machines, sections and symbols.

The lists contain what TVM's LLVM back end and LLD write for the kernels and models of this project, and little more. If
a compiler upgrade needs another entry, the tests that compile for every target fail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# The field e_machine of the ELF header, by the architecture of a target.
MACHINES: Mapping[str, int] = {"x86_64": 62, "aarch64": 183, "riscv64": 243}

_REAL_FUNCTIONS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh"),
    *("erf", "exp", "exp2", "exp10", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod"),
    *("hypot", "ldexp", "log", "log10", "log1p", "log2", "nearbyint", "nextafter", "pow", "rint"),
    *("round", "roundeven", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
# The undefined symbols that are allowed: arithmetic and memory copies of the C library, but nothing of the runtime.
IMPORTS = frozenset({*_REAL_FUNCTIONS, *(f"{name}f" for name in _REAL_FUNCTIONS), "memcpy", "memmove", "memset"})

# Pointers to functions of the runtime, which the runtime stores when it loads a library. Compiled code uses no others.
FILLED_IN = frozenset({f"__TVMBackend{name}" for name in ("ParallelLaunch", "AllocWorkspace", "FreeWorkspace")})
_FUNCTION = re.compile(r"octet_[A-Za-z0-9_.$]+")
# Conversions of float16, which LLVM calls on CPUs without instructions for them. TVM puts a copy into every object.
_HELPERS = frozenset({"__truncsfhf2", "__extendhfsf2"})


def is_filled_in(name: str) -> bool:
    """Returns true if the runtime stores a pointer at this symbol."""
    return name in FILLED_IN


def is_export(name: str) -> bool:
    """Returns true if a library may define this symbol."""
    return name in _HELPERS or is_filled_in(name) or _FUNCTION.fullmatch(name) is not None


def is_shared(name: str) -> bool:
    """Returns true if several objects may define this symbol. The linker then takes one of the definitions."""
    return name in _HELPERS or is_filled_in(name)


# Types and flags of sections: gABI, chapter 4, "Sections".
PROGBITS, SYMTAB, STRTAB, RELA, NOBITS, DYNAMIC, DYNSYM = 1, 2, 3, 4, 8, 6, 11
_GNU_HASH, _X86_64_UNWIND, _RISCV_ATTRIBUTES = 0x6FFFFFF6, 0x70000001, 0x70000003
WRITE, ALLOC, EXECUTE, MERGE, STRINGS, INFO_LINK, AARCH64_PURECODE = 1, 2, 4, 0x10, 0x20, 0x40, 0x20000000

_TABLES = {".symtab": SYMTAB, ".strtab": STRTAB, ".shstrtab": STRTAB}
_CONTENT: tuple[tuple[re.Pattern[str], frozenset[int], int], ...] = tuple(
    (re.compile(name), frozenset(types), flags)
    for name, types, flags in (
        (r"\.text(\..+)?", {PROGBITS}, ALLOC | EXECUTE),
        (r"\.rodata(\..+)?", {PROGBITS}, ALLOC | MERGE | STRINGS),
        (r"\.data(\.rel\.ro)?", {PROGBITS}, ALLOC | WRITE),
        (r"\.bss", {NOBITS}, ALLOC | WRITE),
        (r"\.eh_frame", {PROGBITS, _X86_64_UNWIND}, ALLOC),
        (r"\.debug_[a-z]+", {PROGBITS}, MERGE | STRINGS),
        (r"\.comment", {PROGBITS}, MERGE | STRINGS),
        (r"\.note\.GNU-stack", {PROGBITS}, 0),
        (r"\.riscv\.attributes", {_RISCV_ATTRIBUTES}, 0),
    )
)
# The sections that the linker adds.
_LINKED: Mapping[str, tuple[int, int]] = {
    ".dynsym": (DYNSYM, ALLOC),
    ".dynstr": (STRTAB, ALLOC),
    ".gnu.hash": (_GNU_HASH, ALLOC),
    ".rela.dyn": (RELA, ALLOC),
    ".rela.plt": (RELA, ALLOC | INFO_LINK),
    ".eh_frame_hdr": (PROGBITS, ALLOC),
    ".plt": (PROGBITS, ALLOC | EXECUTE | AARCH64_PURECODE),
    ".dynamic": (DYNAMIC, ALLOC | WRITE),
    ".got": (PROGBITS, ALLOC | WRITE),
    ".got.plt": (PROGBITS, ALLOC | WRITE),
    ".relro_padding": (NOBITS, ALLOC | WRITE),
}


def is_object_section(name: str, kind: int, flags: int) -> bool:
    """Returns true if an object may have this section."""
    if kind == RELA:
        return name.startswith(".rela.") and flags == INFO_LINK and _is_content(name.removeprefix(".rela"))
    return _TABLES.get(name) == kind or _is_content(name, kind, flags)


def is_library_section(name: str, kind: int, flags: int) -> bool:
    """Returns true if a library may have this section."""
    if name in _LINKED:
        expected, most = _LINKED[name]
        return kind == expected and not flags & ~most
    return _TABLES.get(name) == kind or _is_content(name, kind, flags)


def _is_content(name: str, kind: int | None = None, flags: int = 0) -> bool:
    """Returns true if a section of code or data may have this name and, if the type is given, this type and flags."""
    return any(
        pattern.fullmatch(name) is not None and (kind is None or (kind in types and not flags & ~most))
        for pattern, types, most in _CONTENT
    )
