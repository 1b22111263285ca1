"""Runs kernels for other architectures. A kernel is linked with a small program, which runs on a CPU that QEMU
emulates.

The emulated CPU has exactly the features of the target. Any other instruction is illegal.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.objects import compile_program, program_of
from service.compiler.lowering.link import linker
from service.compiler.targets import codegen_target
from service.core.models.arrays import Array
from service.core.target import parse_target

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "octet-tests"


@dataclass(frozen=True)
class Machine:
    """The tools with which this machine can run code of an architecture.

    Attributes:
        architecture: the name that `uname -m` prints. QEMU and zig use the same name.
        emulation: the name that LLD uses.
        loader: the file name of the dynamic loader.
        c_library: the Debian package with the loader and the C library.
        version: the oldest major version of QEMU that works.
    """

    architecture: str
    emulation: str
    loader: str
    c_library: str
    version: int = 7

    @functools.cached_property
    def emulator(self) -> str | None:
        """The path of QEMU in the tests' cache or on the PATH, or None if neither has a version that is new enough.

        The cache is used because Debian's package qemu-user-static may be too old.
        """
        for name in (f"qemu-{self.architecture}", f"qemu-{self.architecture}-static"):
            path = shutil.which(name, path=os.pathsep.join([str(CACHE / "bin"), os.environ.get("PATH", "")]))
            if path is not None and _version(path) >= self.version:
                return path
        return None

    @property
    def missing(self) -> str:
        """The reason why no code can be run, or "" if it can."""
        name = f"qemu-{self.architecture} {self.version} or newer (package qemu-user-static)"
        return "" if self.emulator else f"{self.architecture} is not tested here: there is no {name}"


def _version(emulator: str) -> int:
    output = subprocess.run([emulator, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)", output)
    assert found is not None
    return int(found[1])


_ARM = Machine("aarch64", "aarch64linux", "ld-linux-aarch64.so.1", "libc6-arm64-cross")
# Versions before 8 crash with an assertion if two consecutive conversions round towards zero.
_RISCV = Machine("riscv64", "elf64lriscv", "ld-linux-riscv64-lp64d.so.1", "libc6-riscv64-cross", version=8)
MACHINES = {machine.architecture: machine for machine in (_ARM, _RISCV)}

# Target -> name of QEMU's CPU.
CPUS = {
    "aarch64": "cortex-a53",
    "aarch64+dotprod": "neoverse-n1",
    "aarch64+i8mm": "max",
    "riscv64+v": "rv64,v=true,vlen=128",
}


def machine_of(target: str) -> Machine:
    return MACHINES[parse_target(target).architecture]


_DRIVER = Path(__file__).with_name("emulated_driver.c")
_SYMBOL = "kernel"


class Died(Exception):
    """The program with the kernel did not exit with status 0."""


def compile_kernel(target: str, kernel: Kernel, path: Path) -> None:
    """Compiles a kernel to the object file `path`."""
    compile_program(program_of(kernel), _SYMBOL, codegen_target(parse_target(target)), path)


def call(target: str, kernel: Kernel, arguments: Sequence[Array], cpu: str | None = None) -> list[Array]:
    """Calls a kernel.

    Args:
        target: a key of `CPUS`.
        arguments: one array for each parameter of the function.
        cpu: the name of QEMU's CPU; by default the target's.

    Returns:
        The contents of the arguments after the call.

    Raises:
        Died: the kernel did not return.
    """
    machine = machine_of(target)
    assert machine.emulator is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compile_kernel(target, kernel, folder / "kernel.o")
        program, operands = folder / "program", folder / "operands"
        _link(machine, [_driver(machine), folder / "kernel.o"], program)
        positions = _write(operands, arguments)
        with operands.open("r+b") as file:
            command = [machine.emulator, "-cpu", cpu or CPUS[target], str(program)]
            done = subprocess.run(command, stdin=file, capture_output=True, text=True)
        if done.returncode:
            raise Died(f"{kernel.family} for {target}: status {done.returncode}, {done.stderr}")
        written = operands.read_bytes()
    return [
        np.frombuffer(written, array.dtype, array.size, at).reshape(array.shape)
        for array, at in zip(arguments, positions, strict=True)
    ]


def _write(path: Path, arguments: Sequence[Array]) -> list[int]:
    """Writes the file that the driver reads, and returns the offsets of the arguments in it."""
    positions, end = [], 8 + 16 * len(arguments)
    for array in arguments:
        positions.append(-(-end // 64) * 64)
        end = positions[-1] + array.nbytes
    content = bytearray(end)
    sizes = [array.nbytes for array in arguments]
    header = [len(arguments), *(number for pair in zip(positions, sizes, strict=True) for number in pair)]
    content[: 8 * len(header)] = np.array(header, "<u8").tobytes()
    for array, at in zip(arguments, positions, strict=True):
        content[at : at + array.nbytes] = np.ascontiguousarray(array).tobytes()
    path.write_bytes(content)
    return positions


@functools.cache
def _driver(machine: Machine) -> Path:
    """Compiles the driver program, once per process, and returns the path of its object file."""
    folder = Path(tempfile.mkdtemp(prefix="octet-emulated-"))
    target = ("-target", f"{machine.architecture}-linux-musl")
    options = ("-c", "-O1", "-ffreestanding", "-fno-stack-protector", "-g0", "-fno-sanitize=all")
    _zig("cc", *target, *options, str(_DRIVER), "-o", str(folder / "driver.o"))
    return folder / "driver.o"


def _link(machine: Machine, objects: Sequence[Path], program: Path) -> None:
    _zig("ld.lld", "-m", machine.emulation, "-static", *map(str, objects), "-o", str(program))


def _zig(*arguments: str) -> None:
    done = subprocess.run([str(linker()), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
