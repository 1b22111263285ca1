"""Emulated GPUs: a replacement for NVIDIA's driver (`driver`), and kernels for it.

Environment variables configure them, so code that uses an emulated GPU runs in a child process: `in_a_child`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.compiler.lowering.link import link
from service.core.target import parse_target
from tests.support.native import PRODUCTS, build

ROOT = Path(__file__).parents[2]
_ZIG = (sys.executable, "-m", "ziglang")
_DRIVER = [*sorted((ROOT / "tools/cuda_emulator/driver").glob("*.cc")), ROOT / "service/native/runtime/sha256.cc"]

# The driver calls this function once for each launch of a kernel.
_DISPATCH = """
#include <stdint.h>
#include <string.h>
#define KERNEL(name) \\
  static void name(const uint32_t* grid, const uint32_t* block, uint32_t shared_bytes, void* const* o)
%(source)s
int32_t octet_emulated_launch(const char* symbol, const uint32_t* grid, const uint32_t* block, uint32_t shared_bytes,
                              void* const* operands, char* said, size_t said_bytes) {
  %(cases)s
  strncpy(said, "no such kernel", said_bytes);
  return 1;
}
"""

# All tensors have 16 elements, like those of `small_artifact`.
KERNELS = """
#ifndef CAPABILITY
#define CAPABILITY 80
#endif
enum { N = 16 };
#define A ((const int32_t*)o[0])
KERNEL(octet_add) { for (int i = 0; i < N; ++i) ((int32_t*)o[2])[i] = A[i] + ((const int32_t*)o[1])[i]; }
KERNEL(octet_twice) { for (int i = 0; i < N; ++i) ((int32_t*)o[1])[i] = 2 * A[i]; }
KERNEL(octet_launch) {
  int32_t* seen = o[1];
  for (int i = 0; i < 3; ++i) seen[i] = grid[i], seen[3 + i] = block[i];
  seen[6] = shared_bytes, seen[7] = CAPABILITY;
}
"""
SYMBOLS = {"octet_add": 3, "octet_twice": 2, "octet_launch": 2}


def build_driver(folder: Path, compiler: Sequence[str] = PRODUCTS) -> Path:
    """Builds the replacement as `folder/libcuda.so.1`, and returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-std=c++20", "-O1", "-g", "-fPIC", "-fvisibility=hidden", f"-I{ROOT}"]
    build(_DRIVER, folder / "libcuda.so.1", options, ["-shared", "-Wl,-soname,libcuda.so.1"], compiler)
    return folder


def cubin(kernels: Mapping[str, int], capability: int = 80, salt: str = "") -> bytes:
    """Returns a file with the structure of a cubin that contains `salt` instead of code.

    Args:
        kernels: maps the name of a kernel to the number of its parameters.
    """
    base = 0x210 if capability >= 90 else 0x160 if capability >= 70 else 0x140
    sections = [("", 0, b""), (".shstrtab", 3, b"")]
    for name, parameters in kernels.items():
        sections += [(f".text.{name}", 1, f"{name} {salt}".encode())]
        sections += [(f".nv.constant0.{name}", 1, bytes(base + 8 * parameters))]
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in sections[1:])
    sections[1] = (".shstrtab", 3, names)
    contents, headers = b"", b""
    for name, kind, content in sections:
        at = names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
        headers += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(contents), len(content), 0, 0, 1, 0)
        contents += content
    contents += bytes(-len(contents) % 8)
    identity = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7)
    flags = capability << 16 | 0x0500 | capability
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", identity, 2, 190, 129, 0, 0, 64 + len(contents), flags, 64, 56, 0, 64, len(sections), 1
    )
    return header + contents + headers


def emulate(source: str, symbols: Sequence[str], image: bytes, folder: Path) -> None:
    """Compiles the C code that runs in place of a cubin to `folder`. It defines each kernel as `KERNEL(name)`."""
    cases = "\n  ".join(
        f'if (!strcmp(symbol, "{name}")) return {name}(grid, block, shared_bytes, operands), 0;' for name in symbols
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(image).hexdigest()}.so"
    command = [*_ZIG, "cc", "-x", "c", "-", "-shared", "-O1", "-fPIC", "-o", str(path)]
    subprocess.run(command, input=(_DISPATCH % {"source": source, "cases": cases}).encode(), check=True)


def device_object(symbol: str, image: bytes, path: Path) -> Path:
    """Writes an object file that defines `symbol` as the data `image`, and returns its path."""
    data = path.with_suffix(".cubin")
    data.write_bytes(image)
    text = (
        f".section .rodata\n.balign 64\n.globl {symbol}\n.type {symbol}, @object\n{symbol}:\n"
        f'.incbin "{data}"\n.size {symbol}, . - {symbol}\n.section .note.GNU-stack,"",@progbits\n'
    )
    path.with_suffix(".s").write_text(text)
    subprocess.run([*_ZIG, "cc", "-c", str(path.with_suffix(".s")), "-o", str(path)], check=True)
    return path


def build_library(folder: Path, kernels: Path, *capabilities: int) -> Path:
    """Builds a library that contains a cubin for each of `KERNELS`. The code that runs in place of the cubins is built
    in `kernels`.

    Args:
        capabilities: the compute capabilities for which the library contains code. `octet_launch` writes the capability
            that runs as its last element.
    """
    folder.mkdir(parents=True, exist_ok=True)
    objects, names = [], [f"sm_{each}" for each in capabilities or (80,)]
    for symbol, parameters in SYMBOLS.items():
        for name in names:
            capability = int(name.removeprefix("sm_"))
            image = cubin({symbol: parameters}, capability)
            emulate(f"#define CAPABILITY {capability}\n{KERNELS}", list(SYMBOLS), image, kernels)
            defined = symbol if len(names) == 1 else f"{symbol}.{name}"
            objects.append(device_object(defined, image, folder / f"{defined}.o"))
    link(objects, folder / "library.so", parse_target(f"cuda-{names[0]}"), allow_unsandboxed=True)
    return folder / "library.so"


def environment(driver: Path, kernels: Path, **settings: str) -> dict[str, str]:
    """Returns the environment variables for a process with emulated GPUs.

    Args:
        settings: `cards`, `version` and `fault`, which `driver/libcuda.cc` describes; and environment variables.
    """
    of_emulator = {f"OCTET_EMULATED_{name.upper()}": value for name, value in settings.items() if name.islower()}
    others = {name: value for name, value in settings.items() if not name.islower()}
    paths = {"LD_LIBRARY_PATH": str(driver), "OCTET_EMULATED_KERNELS": str(kernels)}
    return {**os.environ, **paths, **of_emulator, **others}


def in_a_child(function: Callable[..., Any], *arguments: Any, environment: Mapping[str, str]) -> Any:
    """Calls a module-level function in a child process and returns its result. Arguments and result are passed as JSON.

    Raises:
        AssertionError: the function failed, or used the driver incorrectly.
    """
    order = json.dumps([function.__module__, function.__qualname__, list(map(_plain, arguments))])
    command = [sys.executable, "-m", __name__]
    run = subprocess.run(
        command, input=order, env=dict(environment), cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def _plain(argument: Any) -> Any:
    return str(argument) if isinstance(argument, Path) else argument


def _main() -> None:
    module, name, arguments = json.load(sys.stdin)
    print(json.dumps(getattr(importlib.import_module(module), name)(*arguments)))


if __name__ == "__main__":
    _main()
