"""Whole models on an emulated ARM CPU, by the real runtime, built for aarch64.

Its C library is Debian's (`libc6-arm64-cross`, 1 MB), fetched once and kept in a cache.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from service.core.signature import ModelSignature
from service.core.vectors import Sample
from tests.support import arm

_HERE, _RUNTIME = Path(__file__).parent, Path(__file__).parents[2] / "service/native/runtime"
_PACKAGE = "libc6-arm64-cross"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "octet-tests"
_FLAGS = ("-O2", "-g0", "-pthread", "-fno-exceptions", "-fno-rtti", "-I.", "-Iservice/native/runtime")


@functools.cache
def missing() -> str:
    """Why models cannot run here; empty where they can."""
    return arm.MISSING or ("" if _root() else f"ARM is not tested here: {_PACKAGE} is neither installed nor fetched")


def run(
    target: str, paths: Sequence[Path], signature: ModelSignature, samples: Sequence[Sample]
) -> list[list[arm.Array]]:
    """The outputs of an artifact for each sample.

    Args:
        paths: the folder that `octet compile --output` writes; or the config, the library and the constants.
    """
    root = _root()
    assert root is not None
    assert arm.EMULATOR is not None
    arguments = [str(_program()), str(len(samples)), "2", *map(str, paths)]
    sent = b"".join(np.ascontiguousarray(value).tobytes() for sample in samples for value in sample)
    command = [arm.EMULATOR, "-cpu", arm.CPUS[target], "-L", str(root), *arguments]
    done = subprocess.run(command, input=sent, capture_output=True)
    if done.returncode:
        raise arm.Died(f"status {done.returncode}, {done.stderr.decode()}")
    answers: list[list[arm.Array]] = []
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
def _program() -> Path:
    """`arm_model.c` with the runtime, as one program, compiled once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="octet-arm-"))
    unit = folder / "runtime.cc"
    sources = sorted(_RUNTIME.glob("*.cc"))
    unit.write_text("".join(f'#include "{source}"\n' for source in sources))
    _zig("c++", "-c", "-std=c++17", *_FLAGS, str(unit), "-o", str(folder / "runtime.o"))
    _zig("cc", "-c", *_FLAGS, str(_HERE / "arm_model.c"), "-o", str(folder / "model.o"))
    _zig("cc", "-pthread", str(folder / "model.o"), str(folder / "runtime.o"), "-ldl", "-o", str(folder / "model"))
    return folder / "model"


def _zig(command: str, *arguments: str) -> None:
    target = ("-target", "aarch64-linux-gnu.2.28")
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", command, *target, *arguments],
        cwd=_RUNTIME.parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def _root() -> Path | None:
    """Where `lib/ld-linux-aarch64.so.1` is."""
    for root in (Path("/usr/aarch64-linux-gnu"), _CACHE / _PACKAGE / "usr/aarch64-linux-gnu"):
        if (root / "lib/ld-linux-aarch64.so.1").exists():
            return root
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as name:
        folder = Path(name)
        fetched = subprocess.run(["apt-get", "download", _PACKAGE], cwd=folder, capture_output=True)
        packages = list(folder.glob("*.deb"))
        if fetched.returncode or not packages:
            return None
        subprocess.run(["dpkg", "-x", str(packages[0]), str(folder / "content")], check=True)
        (_CACHE / _PACKAGE).mkdir(exist_ok=True)
        shutil.copytree(folder / "content", _CACHE / _PACKAGE, dirs_exist_ok=True, symlinks=True)
    return _CACHE / _PACKAGE / "usr/aarch64-linux-gnu"
