"""Builds objects and libraries from assembly for every architecture, with clang and LLD from the `ziglang` wheel.

They may contain parts that TVM never writes: initializers, resolvers, unusual sections.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from service.compiler.lowering.link import linker

EMULATIONS = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv"}

_STACK = '.section .note.GNU-stack,"",%progbits\n'


def function(name: str = "octet_f", *, kind: str = "function", section: str = ".text") -> str:
    """Returns the assembly of a function that does nothing."""
    flags = "" if section == ".text" else ',"ax",%progbits'
    head = f".section {section}{flags}\n.globl {name}\n.type {name},%{kind}\n{name}:\n"
    return f"{head} ret\n.size {name}, .-{name}\n"


def pointer(section: str, flags: str = "aw", kind: str = "%progbits", to: str = "octet_f") -> str:
    """Returns the assembly of a section that contains the address of a function."""
    return f'.section {section},"{flags}",{kind}\n .quad {to}\n'


def data(name: str, content: bytes) -> str:
    """Returns the assembly of constants that a library exports as `octet_<name>`."""
    symbol = f"octet_{name}"
    listed = ",".join(map(str, content))
    head = f".section .rodata\n.globl {symbol}\n.type {symbol},%object\n"
    return f"{head}{symbol}: .byte {listed}\n.size {symbol}, .-{symbol}\n"


def assemble(directory: Path, text: str, architecture: str = "x86_64", name: str = "code.o") -> Path:
    """Assembles `text` to an object file, and returns its path."""
    source = (directory / name).with_suffix(".s")
    source.write_text(text + _STACK)
    _zig(directory, "cc", "-c", "-target", f"{architecture}-linux-gnu", "-g0", source.name, "-o", name)
    source.unlink()
    return directory / name


def linked(directory: Path, text: str, architecture: str = "x86_64", *options: str, name: str = "library.so") -> Path:
    """Assembles `text` and links it with `options` to a shared library, without any check. Returns its path."""
    code = assemble(directory, text, architecture)
    _zig(directory, "ld.lld", "-shared", "-m", EMULATIONS[architecture], *options, "-o", name, code.name)
    code.unlink()
    return directory / name


def constructor(directory: Path, made: Path, architecture: str) -> Path:
    """Builds a library that creates the file `made` when it is loaded. Returns its path."""
    source = directory / "constructor.c"
    source.write_text(
        "extern int creat(const char *, unsigned);\n"
        f"__attribute__((constructor)) static void run(void) {{ creat({json.dumps(str(made))}, 0600); }}\n"
    )
    _zig(directory, "cc", "-c", "-fPIC", "-target", f"{architecture}-linux-gnu", "-g0", source.name, "-o", "c.o")
    options = ("-shared", "--hash-style=gnu", "-m", EMULATIONS[architecture])
    _zig(directory, "ld.lld", *options, "-o", "constructor.so", "c.o")
    return directory / "constructor.so"


def _zig(directory: Path, *arguments: str) -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        subprocess.run([str(linker()), *arguments], cwd=directory, check=True, env=environment)
