"""Kernels for ARM, run here: linked with a small program, on a CPU that QEMU emulates.

The CPU is one that has a target's features and no more, so that an instruction beyond them is an illegal one.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.objects import compile_program, program_of
from service.compiler.link import linker
from service.compiler.targets import codegen_target
from service.core.target import parse_target

Array = NDArray[Any]

# Debian's package qemu-user-static.
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
CPUS = {"aarch64": "cortex-a53", "aarch64+dotprod": "neoverse-n1", "aarch64+i8mm": "max"}
MISSING = "" if EMULATOR else "ARM is not tested here: there is no qemu-aarch64 (Debian's package qemu-user-static)"

_DRIVER = Path(__file__).with_name("arm_driver.c")
_SYMBOL = "kernel"


class Died(Exception):
    """The program with the kernel ended otherwise than by returning."""


def compile_kernel(target: str, kernel: Kernel, path: Path) -> None:
    """Writes the object of a kernel."""
    compile_program(program_of(kernel), _SYMBOL, codegen_target(parse_target(target)), path)


def call(target: str, kernel: Kernel, arguments: Sequence[Array], cpu: str | None = None) -> list[Array]:
    """Calls a kernel.

    Args:
        target: of `CPUS`.
        arguments: one for each of the function's parameters.
        cpu: by default the target's.

    Returns:
        what the arguments are afterwards.

    Raises:
        Died: it did not return.
    """
    assert EMULATOR is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compile_kernel(target, kernel, folder / "kernel.o")
        program, operands = folder / "program", folder / "operands"
        _link([_driver(), folder / "kernel.o"], program)
        places = _write(operands, arguments)
        with operands.open("r+b") as file:
            command = [EMULATOR, "-cpu", cpu or CPUS[target], str(program)]
            done = subprocess.run(command, stdin=file, capture_output=True, text=True)
        if done.returncode:
            raise Died(f"{kernel.family} for {target}: status {done.returncode}, {done.stderr}")
        written = operands.read_bytes()
    return [
        np.frombuffer(written, array.dtype, array.size, at).reshape(array.shape)
        for array, at in zip(arguments, places, strict=True)
    ]


def _write(path: Path, arguments: Sequence[Array]) -> list[int]:
    """The file that the driver reads, and where in it the arguments lie."""
    places, end = [], 8 + 16 * len(arguments)
    for array in arguments:
        places.append(-(-end // 64) * 64)
        end = places[-1] + array.nbytes
    content = bytearray(end)
    sizes = [array.nbytes for array in arguments]
    header = [len(arguments), *(number for pair in zip(places, sizes, strict=True) for number in pair)]
    content[: 8 * len(header)] = np.array(header, "<u8").tobytes()
    for array, at in zip(arguments, places, strict=True):
        content[at : at + array.nbytes] = np.ascontiguousarray(array).tobytes()
    path.write_bytes(content)
    return places


@functools.cache
def _driver() -> Path:
    """The object of the program, compiled once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="octet-arm-"))
    options = ("-c", "-target", "aarch64-linux-musl", "-O1", "-ffreestanding", "-fno-stack-protector", "-g0")
    _zig("cc", *options, "-fno-sanitize=all", str(_DRIVER), "-o", str(folder / "driver.o"))
    return folder / "driver.o"


def _link(objects: Sequence[Path], program: Path) -> None:
    _zig("ld.lld", "-m", "aarch64linux", "-static", *map(str, objects), "-o", str(program))


def _zig(*arguments: str) -> None:
    done = subprocess.run([str(linker()), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
