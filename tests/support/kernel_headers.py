"""Linux's system call tables for every architecture, from the headers in the `ziglang` wheel."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

_DIRECTORIES = {"x86_64": "x86-linux-any", "aarch64": "aarch64-linux-any"}


def syscall_numbers(architecture: str) -> dict[str, int]:
    """Returns name -> number for every system call of `architecture`."""
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None
    assert spec.origin is not None
    include = Path(spec.origin).with_name("lib") / "libc" / "include"
    text = (include / _DIRECTORIES[architecture] / "asm" / "unistd_64.h").read_text()
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", text)}
