"""What the shared library shows of itself, and what it needs."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import service.native
from service.core.elf.reader import ElfFile
from service.runtime.octet_library import _FUNCTIONS

_LIBRARY = Path(service.native.__file__ or "").with_name("liboctet_runtime.so")
_HEADER = _LIBRARY.parent / "runtime" / "octet.h"
_MOST_BYTES = 300_000
_DECLARED = set(re.findall(r"^OCTET_API[^;(]*?\b(octet_\w+)\(", _HEADER.read_text(), re.MULTILINE))


def _dynamic() -> tuple[set[str], set[str], set[str]]:
    """Names that it defines, names that it wants, libraries that it needs."""
    data = _LIBRARY.read_bytes()
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
        if tag == 1
    }
    return (
        {each.name for each in symbols if each.section},
        {each.name for each in symbols if not each.section},
        needed,
    )


def test_it_exports_what_its_header_declares_and_nothing_else() -> None:
    assert _dynamic()[0] == _DECLARED


def test_it_needs_the_c_library_alone() -> None:
    _, wanted, needed = _dynamic()
    assert {name.split(".so")[0] for name in needed} <= {"libc", "libm", "libdl", "libpthread", "ld-linux-x86-64"}
    assert [name for name in wanted if name.startswith(("_Z", "__cxa_throw", "_Unwind"))] == []


def test_it_is_small() -> None:
    assert _LIBRARY.stat().st_size < _MOST_BYTES


def test_python_declares_what_the_header_declares() -> None:
    assert {f"octet_{name}" for name in _FUNCTIONS} == _DECLARED
