"""Compiles the data plane with a sanitizer of the system's compiler."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_NATIVE = _ROOT / "service" / "native"
_FOLDERS = (_ROOT, _NATIVE / "plane", _NATIVE)


def sanitized_plane(directory: Path, sanitizers: str) -> Path:
    """Compiles the program to `directory`. Each folder of the sources is one unit, so that headers are compiled once
    per folder.
    """
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    units = [*_write_units(directory), _NATIVE / "runtime" / "sha256.cc"]
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


def _write_units(directory: Path) -> Iterator[Path]:
    sources = sorted((_NATIVE / "plane").rglob("*.cc"), key=lambda source: (source.parent, source))
    for folder, members in groupby(sources, lambda source: source.parent):
        unit = directory / f"plane_{folder.name}.cc"
        unit.write_text("".join(f'#include "{member.relative_to(_ROOT)}"\n' for member in members))
        yield unit
