"""Writes an object file that contains only data, for the parts of a library that no CPU runs, such as GPU code.

Format: the System V ABI (gABI, chapter 4).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from service.core.elf.names import MACHINES

_HEADER, _SECTION, _SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")  # 64 bits, little-endian, version 1
_RELOCATABLE, _VERSION = 1, 1
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC = 2
_GLOBAL_OBJECT = 1 << 4 | 1
_ALIGNMENT = 64


def data_object(name: str, variables: Mapping[str, bytes], architecture: str) -> bytes:
    """Returns a relocatable object that defines read-only variables.

    Args:
        name: the suffix of the section's name, `.rodata.NAME`.
        variables: name of a global symbol -> its bytes. Each is placed at a multiple of 64 bytes.
        architecture: the architecture of the library that the object will be linked into.
    """
    section = f".rodata.{name}"
    section_names = b"\0" + b"\0".join(each.encode() for each in (section, ".symtab", ".strtab", ".shstrtab")) + b"\0"
    data, strings, symbols = b"", b"\0", bytes(_SYMBOL.size)
    for variable, content in variables.items():
        data = data.ljust(-(-len(data) // _ALIGNMENT) * _ALIGNMENT, b"\0")
        symbols += _SYMBOL.pack(len(strings), _GLOBAL_OBJECT, 0, 1, len(data), len(content))
        strings += variable.encode() + b"\0"
        data += content
    contents = [data, symbols, strings, section_names]
    at, positions, body = _ALIGNMENT, [], b""
    for content in contents:
        positions.append(at + len(body))
        body += content.ljust(-(-len(content) // _ALIGNMENT) * _ALIGNMENT, b"\0")
    described = [
        (section, _PROGBITS, _ALLOC, 0, 0, _ALIGNMENT, 0),
        (".symtab", _SYMTAB, 0, 3, 1, 8, _SYMBOL.size),
        (".strtab", _STRTAB, 0, 0, 0, 1, 0),
        (".shstrtab", _STRTAB, 0, 0, 0, 1, 0),
    ]
    headers = bytes(_SECTION.size)
    for (title, kind, flags, link, info, alignment, entry), position, content in zip(
        described, positions, contents, strict=True
    ):
        named = section_names.index(b"\0" + title.encode() + b"\0") + 1
        headers += _SECTION.pack(named, kind, flags, 0, position, len(content), link, info, alignment, entry)
    counts = (_HEADER.size, 0, 0, _SECTION.size, len(described) + 1, len(described))
    head = _HEADER.pack(
        _IDENTITY, _RELOCATABLE, MACHINES[architecture], _VERSION, 0, 0, _ALIGNMENT + len(body), 0, *counts
    )
    return head.ljust(_ALIGNMENT, b"\0") + body + headers
