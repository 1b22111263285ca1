"""Assembles the CUDA C++ of a kernel: headers of the folder `source`, and the function that uses them.

The text contains every included header once. So the compiler reads no other files, and the digest of the text covers
everything that determines the machine code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from service.core.models.arrays import Array

_FOLDER = Path(__file__).with_name("source")
_INCLUDE = re.compile(r'^#include "([a-z_]+\.cuh)"$', re.MULTILINE)
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)

TYPES = {"uint8": "octet::u8", "int8": "octet::i8", "int16": "octet::i16", "int32": "octet::i32", "float32": "float"}


def translation_unit(header: str, body: str, definitions: str = "") -> str:
    """Returns the text of `header` with its includes, then definitions, and then `body`."""
    return f"{_headers(header)}\n\n{definitions}{body}"


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
    """Returns the entry function of a kernel. Its operands must not overlap.

    Args:
        threads: the number of threads of a thread block.
        blocks: the least number of thread blocks that should be resident on a multiprocessor.
    """
    head = f'extern "C" __global__ void __launch_bounds__({threads}, {blocks}) OCTET_KERNEL({", ".join(parameters)})'
    return "\n".join([head, "{", *(f"  {statement}" for statement in statements), "}", ""])


def constant_parameters(arrays: Sequence[Array]) -> list[str]:
    """Returns the declarations of the parameters `constant_0`, `constant_1` …"""
    return [f"const {TYPES[str(array.dtype)]}* __restrict__ constant_{index}" for index, array in enumerate(arrays)]
