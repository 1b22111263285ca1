"""Numerics modes: the names of the reference runtimes whose arithmetic a build follows, bit for bit.

What each mode computes, operator by operator, is in `compiler/qnn/numerics/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import Unsupported

LITERT_REFERENCE = "litert-reference"
XNNPACK = "xnnpack"
MODES: tuple[str, ...] = (LITERT_REFERENCE, XNNPACK)
DEFAULT_MODE: Mapping[str, str] = {"tflite": LITERT_REFERENCE}


def parse_mode(name: str) -> str:
    """`name`, if it is a mode.

    Raises:
        Unsupported: it is not.
    """
    if name not in MODES:
        raise Unsupported(f"unknown numerics mode {name!r}", hint=f"use one of: {', '.join(MODES)}")
    return name
