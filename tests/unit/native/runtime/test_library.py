"""Tests what the shared library exports and requires."""

from __future__ import annotations

import re
from pathlib import Path

import service.native
from tests.support.dynamic_symbols import dynamic_symbols

_LIBRARY = Path(service.native.__file__ or "").with_name("liboctet_runtime.so")
_HEADER = _LIBRARY.parent / "runtime" / "octet.h"
_MOST_BYTES = 300_000
_DECLARED = set(re.findall(r"^OCTET_API[^;(]*?\b(octet_\w+)\(", _HEADER.read_text(), re.MULTILINE))


def test_the_library_exports_exactly_the_functions_of_its_header() -> None:
    assert dynamic_symbols(_LIBRARY).defined == _DECLARED


def test_the_library_needs_only_the_c_library() -> None:
    found = dynamic_symbols(_LIBRARY)
    libraries = {name.split(".so")[0] for name in found.libraries}
    assert libraries <= {"libc", "libm", "libdl", "libpthread", "ld-linux-x86-64"}
    assert [name for name in found.wanted if name.startswith(("_Z", "__cxa_throw", "_Unwind"))] == []


def test_it_is_small() -> None:
    assert _LIBRARY.stat().st_size < _MOST_BYTES
