"""The declarations of the C interface equal its header."""

from __future__ import annotations

import re
from pathlib import Path

import service.native
from service.runtime.octet_library import _FUNCTIONS

_LIBRARY = Path(service.native.__file__ or "").with_name("liboctet_runtime.so")


_HEADER = _LIBRARY.parent / "runtime" / "octet.h"


_DECLARED = set(re.findall(r"^OCTET_API[^;(]*?\b(octet_\w+)\(", _HEADER.read_text(), re.MULTILINE))


def test_python_declares_what_the_header_declares() -> None:
    assert {f"octet_{name}" for name in _FUNCTIONS} == _DECLARED
