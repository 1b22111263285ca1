"""Runs CUDA C++ kernels on the CPU.

    kernel = EmulatedKernel(source, "octet_conv_0123")
    kernel.launch((4, 1, 1), (128, 1, 1), 0, [data, weights, output])

`source` is the source for NVRTC. Checked builds (the default) check every memory access. Races between threads or
blocks, accesses outside the operands, misaligned vectors and undefined behavior of C++ end the launch with a
`DeviceFault`. Unchecked builds are fast enough for whole models. Builds are cached in ~/.cache/octet-tests by the
digest of their inputs.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.cuda_emulator.errors import DeviceFault, NoEmulator, UnknownDeviceCode
from tools.cuda_emulator.translate import translate

_HERE = Path(__file__).parent
_DEVICE = _HERE / "device"
_KEPT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "octet-tests" / "cuda"
_KEPT_S = 24 * 3600  # after the last use; any change of the emulation invalidates all builds
_TRANSLATED_BY = ("emulated_kernel.py", "translate.py", "ptx.py")
_GXX = "g++"
_LANGUAGE = ("-x", "c++", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")
# The device does not contract products and sums (NVRTC's -fmad=false), and allows accesses of any type (kernels read
# bytes as words).
_SEMANTICS = ("-ffp-contract=off", "-fno-strict-aliasing", "-fno-gnu-unique", "-fno-threadsafe-statics", "-w")
_CHECKS = (
    "-fsanitize=thread",  # only the inserted calls are used; sanitizers.cpp implements them instead of gcc's runtime
    "-fsanitize=undefined",
    "-fsanitize=float-cast-overflow",
    "-fno-sanitize=vptr",
    "-fno-sanitize-recover=all",
    "--param=tsan-instrument-func-entry-exit=0",
)
_ALIGNMENT = 64  # the alignment of operands, which is exactly what a plan's offsets guarantee
_GUARD_BYTES = 4096
_GUARD = 0xCB


def build(source: str, symbol: str, architecture: str = "sm_80", checked: bool = True) -> Path:
    """Builds a shared object with `octet_emulated_launch` from the source that NVRTC would compile for `architecture`.

    The source may name its kernel `OCTET_KERNEL`, as Octet's sources do. It is then renamed to `symbol`.

    Raises:
        NoEmulator: this machine cannot emulate GPUs.
        UnknownDeviceCode: the source is not valid C++, or uses a feature that the emulation does not support.
    """
    if _missing():
        raise NoEmulator(_missing())
    symbol = symbol if "OCTET_KERNEL" in source else ""  # otherwise, the source gives its kernels their names
    flags = (*_LANGUAGE, *_SEMANTICS, "-O1", "-g1", *(_CHECKS if checked else ()))
    runtime = _runtime()
    emulation = (path.read_text() for path in (*_headers(), *(_HERE / name for name in _TRANSLATED_BY)))
    library = _KEPT / f"kernel-{_digest((source, symbol, architecture, *flags, runtime.name, *emulation))}.so"
    if library.exists():
        library.touch()
    else:
        translated = translate(_preprocess(source, symbol, architecture))
        checks = f'extern "C" const bool octet_emulated_checked = {"true" if checked else "false"};\n'
        text = f'#include "device.hpp"\n{checks}# 1 "kernel.cu"\n{translated}'
        _make(library, text, [*flags, f"-I{_DEVICE}"], link=("-shared", "-Wl,-z,defs", str(runtime), "-lm"))
    return library


@dataclass(frozen=True)
class Launched:
    """A launch without a fault.

    Attributes:
        symbol: the kernel's name in the source.
        before, after: the bytes of each operand before and after the launch. Overlapping operands are recorded
            separately.
    """

    source: str
    symbol: str
    architecture: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]


observers: list[Callable[[Launched], None]] = []  # called after each launch without a fault


class EmulatedKernel:
    """The function `symbol` of `source`, compiled for the CPU.

    Raises:
        NoEmulator, UnknownDeviceCode: as in `build`.
    """

    def __init__(self, source: str, symbol: str, *, architecture: str = "sm_80", sanitize: bool = True) -> None:
        self._symbol, self._source, self._architecture = symbol, source, architecture
        self._path = build(source, symbol, architecture, sanitize)
        self._library = ctypes.CDLL(str(self._path))
        self._library.octet_emulated_schedule.argtypes = [ctypes.c_uint64]
        self._library.octet_emulated_region.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        operands: Sequence[NDArray[Any]],
        *,
        seed: int = 0,
    ) -> None:
        """Runs the kernel on copies of `operands`, and copies the results back.

        Args:
            seed: the seed for the order of blocks and threads; 0 for their natural order.

        Raises:
            DeviceFault: the launch caused a race, a divergence, an access outside the operands, or another fault. The
                operands are then unchanged.
        """
        before = tuple(operand.tobytes() for operand in operands) if observers else ()
        guarded = [_Guarded(operand) for operand in operands]
        pointers = (ctypes.c_void_p * len(guarded))(*(each.address for each in guarded))
        problem = ctypes.create_string_buffer(4096)
        sizes = [(ctypes.c_uint32 * 3)(*size) for size in (grid, block)]
        self._library.octet_emulated_schedule(seed)
        self._library.octet_emulated_forget_regions()
        for number, each in enumerate(guarded):
            self._library.octet_emulated_region(each.address, each.bytes, f"operand {number}".encode())
        launched = self._library.octet_emulated_launch(
            self._symbol.encode(), *sizes, ctypes.c_uint32(shared_bytes), pointers, problem, len(problem)
        )
        if launched:
            raise DeviceFault(f"{self._symbol}: {self._with_lines(problem.value.decode())}")
        for number, each in enumerate(guarded):
            if not each.intact():
                raise DeviceFault(f"{self._symbol}: operand {number} is written outside its bytes")
        for operand, each in zip(operands, guarded, strict=True):
            operand[...] = each.value
        if observers:
            self._tell(tuple(grid), tuple(block), shared_bytes, before, tuple(each.value.tobytes() for each in guarded))

    def _tell(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        before: tuple[bytes, ...],
        after: tuple[bytes, ...],
    ) -> None:
        made = (self._source, self._symbol, self._architecture, grid, block, shared_bytes, before, after)
        for observer in observers:
            observer(Launched(*made))

    def _with_lines(self, problem: str) -> str:
        """Replaces offsets in the library (`@0x12a0`) by functions and lines of the source."""

        def line(match: re.Match[str]) -> str:
            # The offset is a return address. The byte before it belongs to the call instruction of the access.
            command = ["addr2line", "-Cpsfie", str(self._path), hex(int(match[1], 16) - 1)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            frames = [re.sub(r" \(discriminator \d+\)| ?\(inlined by\) ", "", frame) for frame in output.splitlines()]
            return f"({', from '.join(frames)})"

        return re.sub(r"@(0x[0-9a-f]+)", line, problem)


class _Guarded:
    """A copy of an operand between guard bytes that must not change. Its alignment is exactly that of a plan's
    offsets.
    """

    def __init__(self, operand: NDArray[Any]) -> None:
        self.bytes = operand.nbytes
        self._room = np.full(self.bytes + 2 * _GUARD_BYTES + 2 * _ALIGNMENT, _GUARD, np.uint8)
        start = _GUARD_BYTES + -(self._room.ctypes.data + _GUARD_BYTES) % (2 * _ALIGNMENT) + _ALIGNMENT
        start -= 2 * _ALIGNMENT if start - 2 * _ALIGNMENT >= _GUARD_BYTES else 0
        self._start, self.address = start, self._room.ctypes.data + start
        self.value = self._room[start : start + self.bytes].view(operand.dtype).reshape(operand.shape)
        self.value[...] = operand

    def intact(self) -> bool:
        behind = self._start + self.bytes
        return bool((self._room[: self._start] == _GUARD).all() and (self._room[behind:] == _GUARD).all())


@cache
def _missing() -> str:
    """Returns the reason why GPU kernels cannot be emulated on this machine, or "" if they can."""
    tools = [tool for tool in (_GXX, "addr2line") if shutil.which(tool) is None]
    if platform.machine() != "x86_64":
        return "GPUs are emulated on x86-64 CPUs only"  # schedule.cpp switches stacks with code for x86-64
    return f"GPUs are not emulated without {' and '.join(tools)}" if tools else ""


def _headers() -> list[Path]:
    return sorted(_DEVICE.glob("*.hpp"))


def _preprocess(source: str, symbol: str, architecture: str) -> str:
    """Expands the macros that NVRTC defines, such as `__CUDA_ARCH__`, but not those of `device.hpp`."""
    capability = int(architecture.removeprefix("sm_").rstrip("a"))
    defined = {"OCTET_KERNEL": symbol, "__CUDA_ARCH__": 10 * capability, "__CUDACC__": 1, "__CUDACC_RTC__": 1}
    options = [f"-D{name}={value}" for name, value in defined.items()]
    command = [_GXX, "-E", "-x", "c++", "-std=c++17", "-undef", "-nostdinc", *options, "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnknownDeviceCode(done.stderr)
    return done.stdout.replace('"<stdin>"', '"kernel.cu"')


@cache
def _runtime() -> Path:
    """Builds the object of the emulation's runtime (fibers, warps, memory), which is the same for all kernels."""
    sources = sorted(_DEVICE.glob("*.cpp"))
    flags = (*_LANGUAGE, "-O2", "-Wall", "-Wextra", "-Werror")
    texts = [path.read_text() for path in (*sources, *_headers())]
    target = _KEPT / f"runtime-{_digest((*flags, *texts))}.o"
    for path in _KEPT.glob("*.*"):
        with suppress(FileNotFoundError):  # another process has deleted the file
            if time.time() - path.stat().st_mtime > _KEPT_S:
                path.unlink()
    if target.exists():
        target.touch()
    else:
        together = "".join(f'#include "{source.name}"\n' for source in sources)
        _make(target, together, [*flags, f"-I{_DEVICE}"])
    return target


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join((_version(), *parts)).encode()).hexdigest()[:32]


@cache
def _version() -> str:
    return subprocess.run([_GXX, "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True, check=True).stdout


def _make(target: Path, text: str, flags: Sequence[str], link: Sequence[str] = ()) -> None:
    """Compiles an object and optionally links it, atomically, because other processes may build the same file.

    Linking is a separate command: with -fsanitize, g++ would add the runtimes of its sanitizers.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        source, compiled, made = (Path(directory) / name for name in ("kernel.cu", "kernel.o", "linked"))
        source.write_text(text)
        _run([_GXX, *flags, "-c", str(source), "-o", str(compiled)])
        if link:
            _run([_GXX, str(compiled), *link, "-o", str(made)])
        (made if link else compiled).replace(target)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnknownDeviceCode(f"g++ refuses the kernel:\n{done.stderr[:4000]}")
