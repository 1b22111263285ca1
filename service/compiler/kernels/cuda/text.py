"""The CUDA C++ of a kernel: headers of the folder `source`, and the one function that uses them.

The text is whole: what it includes stands in it, each header once, so that the compiler reads no file, and a digest of
the text is one of all that decides the code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from service.core.arrays import Array

_FOLDER = Path(__file__).with_name("source")
_INCLUDE = re.compile(r'^#include "([a-z_]+\.cuh)"$', re.MULTILINE)
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)

TYPES = {"uint8": "octet::u8", "int8": "octet::i8", "int16": "octet::i16", "int32": "octet::i32", "float32": "float"}


def translation_unit(header: str, body: str) -> str:
    """The text of `header`, of what it includes, and then `body`."""
    return f"{_headers(header)}\n{body}"


@cache
def _headers(first: str) -> str:
    found: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in found:
            return
        text = (_FOLDER / name).read_text()
        for included in _INCLUDE.findall(text):
            visit(included)
        found[name] = _COMMENT.sub("", _INCLUDE.sub("", text)).replace("#pragma once\n", "").strip()

    visit(first)
    return "\n\n".join(found.values())


def kernel_function(threads: int, parameters: Sequence[str], statements: Sequence[str], blocks: int = 1) -> str:
    """A kernel's entry. Its operands do not overlap.

    Args:
        threads: of a block.
        blocks: of threads that a multiprocessor is to hold at a time, at least.
    """
    head = f'extern "C" __global__ void __launch_bounds__({threads}, {blocks}) OCTET_KERNEL({", ".join(parameters)})'
    return "\n".join([head, "{", *(f"  {statement}" for statement in statements), "}", ""])


def constant_parameters(arrays: Sequence[Array]) -> list[str]:
    """Declarations of `constant_0` and so on."""
    return [f"const {TYPES[str(array.dtype)]}* __restrict__ constant_{place}" for place, array in enumerate(arrays)]
