"""Runs whole models on an emulated CPU, with the real runtime compiled for it.

The C library is Debian's (`libc6-arm64-cross` and similar packages, 1 MB). It is downloaded once and cached.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature
from service.core.verification.vectors import Sample
from tests.support import emulated
from tests.support.emulated import CACHE, Machine

_HERE, _NATIVE = Path(__file__).parent, Path(__file__).parents[2] / "service" / "native"
_INCLUDES = ("-I.", "-Iservice/native", "-Iservice/native/runtime")
_FLAGS = ("-O2", "-g0", "-pthread", "-fno-exceptions", "-fno-rtti", *_INCLUDES)


@functools.cache
def missing(target: str) -> str:
    """Returns the reason why models for `target` cannot run on this machine, or "" if they can."""
    machine = emulated.machine_of(target)
    unfetched = f"{target} is not tested here: {machine.c_library} is neither installed nor fetched"
    return machine.missing or ("" if c_library(machine) else unfetched)


def run(target: str, paths: Sequence[Path], signature: ModelSignature, samples: Sequence[Sample]) -> list[list[Array]]:
    """Returns the outputs of an artifact for each sample.

    Args:
        paths: the folder that `octet compile --output` wrote; or the config, the library and the constants.
    """
    machine = emulated.machine_of(target)
    root = c_library(machine)
    assert root is not None
    assert machine.emulator is not None
    arguments = [str(_program(machine)), str(len(samples)), "2", *map(str, paths)]
    sent = b"".join(np.ascontiguousarray(value).tobytes() for sample in samples for value in sample)
    command = [machine.emulator, "-cpu", emulated.CPUS[target], "-L", str(root), *arguments]
    done = subprocess.run(command, input=sent, capture_output=True)
    if done.returncode:
        raise emulated.Died(f"status {done.returncode}, {done.stderr.decode()}")
    answers: list[list[Array]] = []
    at = 0
    for _ in samples:
        answers.append([])
        for spec in signature.outputs:
            values = np.frombuffer(done.stdout, spec.dtype, int(np.prod(spec.shape)), at)
            answers[-1].append(values.reshape(spec.shape))
            at += values.nbytes
    assert at == len(done.stdout)
    return answers


@functools.cache
def _program(machine: Machine) -> Path:
    """Compiles `emulated_model.c` and the runtime to one program, once per process, and returns its path."""
    folder = Path(tempfile.mkdtemp(prefix="octet-emulated-"))
    unit = folder / "runtime.cc"
    sources = sorted(source for part in ("common", "runtime") for source in (_NATIVE / part).rglob("*.cc"))
    unit.write_text("".join(f'#include "{source}"\n' for source in sources))
    _zig(machine, "c++", "-c", "-std=c++17", *_FLAGS, str(unit), "-o", str(folder / "runtime.o"))
    _zig(machine, "cc", "-c", *_FLAGS, str(_HERE / "emulated_model.c"), "-o", str(folder / "model.o"))
    parts = (str(folder / "model.o"), str(folder / "runtime.o"))
    _zig(machine, "cc", "-pthread", *parts, "-ldl", "-o", str(folder / "model"))
    return folder / "model"


def _zig(machine: Machine, command: str, *arguments: str) -> None:
    target = ("-target", f"{machine.architecture}-linux-gnu.2.28")
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", command, *target, *arguments],
        cwd=_NATIVE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def c_library(machine: Machine) -> Path | None:
    """Returns the folder that contains `lib` with the dynamic loader, or None if the C library is missing."""
    package, installed = machine.c_library, f"usr/{machine.architecture}-linux-gnu"
    for root in (Path("/", installed), CACHE / package / installed):
        if (root / "lib" / machine.loader).exists():
            return root
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        fetched = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True)
        packages = list(folder.glob("*.deb"))
        if fetched.returncode or not packages:
            return None
        subprocess.run(["dpkg", "-x", str(packages[0]), str(folder / "content")], check=True)
        (CACHE / package).mkdir(exist_ok=True)
        shutil.copytree(folder / "content", CACHE / package, dirs_exist_ok=True, symlinks=True)
    return CACHE / package / installed
