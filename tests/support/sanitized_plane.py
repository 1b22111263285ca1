"""Compiles the data plane with a sanitizer of the system's compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_NATIVE = _ROOT / "service" / "native"
_FOLDERS = (_ROOT, _NATIVE / "plane", _NATIVE, _NATIVE / "src")


def sanitized_plane(directory: Path, sanitizers: str) -> Path:
    """Compiles the program to `directory` from the source units of the last build, which setup.py selected."""
    units = sorted((_ROOT / "build" / "native").glob("*/plane_*.cc"))
    if shutil.which("g++") is None or not units:
        pytest.skip("there is no g++, or no build of the data plane")
    flags = [
        "g++",
        "-O1",
        "-g",
        "-std=c++20",
        "-w",
        "-pthread",
        f"-fsanitize={sanitizers}",
        "-fno-sanitize-recover=all",
    ]
    folders = [f"-I{folder}" for folder in _FOLDERS]
    program = directory / "octet-plane"
    objects = [directory / f"{unit.stem}.o" for unit in units]
    compilers = [
        subprocess.Popen([*flags, *folders, "-c", unit, "-o", compiled], cwd=_ROOT)
        for unit, compiled in zip(units, objects, strict=True)
    ]
    assert [compiler.wait() for compiler in compilers] == [0] * len(units)
    linked = [f"-L{_NATIVE}", "-loctet_runtime", f"-Wl,-rpath,{_NATIVE}", "-ldl"]
    subprocess.run([*flags, *objects, *linked, "-o", program], check=True)
    return program
