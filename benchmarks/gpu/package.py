"""Copies the parts of this checkout that running artifacts needs, so that neither a compiler nor an installation is
needed.
"""

from __future__ import annotations

import lzma
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness.home import CHECKOUT

_SERVICE = (
    *("__init__.py", "core", "cache", "runtime", "workers/__init__.py", "workers/data_plane", "native/__init__.py"),
    *("native/liboctet_runtime.so", "native/liboctet_python.so", "native/octet-plane"),
)
_BENCHMARKS = (
    *("__init__.py", "GPU.md", "gpu.sh", "gpu"),
    *(f"harness/{name}.py" for name in ("__init__", "home", "kept", "machine", "tables", "turns", "wire")),
    *(f"serving/{name}.py" for name in ("__init__", "clients/__init__", "clients/generator", "clients/load")),
)
_NOT_COPIED = shutil.ignore_patterns("__pycache__")
# Packages of the server's settings. Compiled ones are included for each version of Python.
_WHEELS = (
    *("annotated-types", "pydantic", "pydantic-core", "pydantic-settings", "python-dotenv", "typing-extensions"),
    "typing-inspection",
)
_WINDOW_BYTES = 64 << 20
_PYTHONS, _GLIBC = ("3.11", "3.12", "3.13"), "manylinux_2_17_x86_64"


def add_program(folder: Path) -> None:
    """Adds the runtime, the data plane and this benchmark."""
    for top, names in (("service", _SERVICE), ("benchmarks", _BENCHMARKS)):
        for name in names:
            source, target = CHECKOUT / top / name, folder / top / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=_NOT_COPIED)
            else:
                shutil.copy(source, target)


def add_wheels(folder: Path) -> None:
    """Adds the versions of this environment. Raises `CalledProcessError` if no registry has them."""
    pinned = [f"{name}=={version(name)}" for name in _WHEELS]
    for python in _PYTHONS:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", python, "--platform", _GLIBC, "--platform", "manylinux2014_x86_64"]
        subprocess.run([*command, "-d", str(folder / "wheels"), *pinned], check=True)


def pack(folder: Path) -> Path:
    """Packs with xz. Its window is so large that constants that occur in the artifacts of several batch sizes are
    stored once."""
    packed = folder.with_name(f"{folder.name}.tar.xz")
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": _WINDOW_BYTES}]
    with lzma.open(packed, "wb", filters=filters) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in sorted(folder.rglob("*"), key=_size):
            archive.add(path, path.relative_to(folder.parent), recursive=False)
    return packed


def _size(path: Path) -> tuple[int, str]:
    """A sort key that puts folders first, and then files of similar size beside each other. The files in a folder
    follow later."""
    return (path.stat().st_size if path.is_file() else -1), str(path)
