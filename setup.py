"""Builds the native library of `service.native`, by the compiler that is among the locked requirements.

Nothing in it is CPython's, so one wheel for each architecture serves every Python: `make wheel`.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import tvm_ffi.libinfo
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

_SOURCES = Path("service/native/src")
_HEADERS = Path(tvm_ffi.libinfo.find_include_path())
_GLIBC = "2.28"  # the oldest that the wheels of tvm-ffi run on
_PLATFORM = f"manylinux_{_GLIBC.replace('.', '_')}_"
_FLAGS = [
    "-std=c++17",
    "-O2",
    "-g0",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
]


class Wheel(bdist_wheel):
    """`--plat-name manylinux_2_28_aarch64` builds for another architecture than this machine's."""

    def finalize_options(self) -> None:
        self.plat_name = self.plat_name or _PLATFORM + platform.machine()
        if not self.plat_name.startswith(_PLATFORM):
            raise SystemExit(f"wheels are for {_PLATFORM}x86_64 and {_PLATFORM}aarch64, not {self.plat_name}")
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", self.plat_name


class BuildNative(build_ext):
    """The library takes twenty seconds of one core; the first on a machine, which builds libc++ too, seventy more."""

    def get_ext_filename(self, fullname: str) -> str:
        """Not of one Python: the library knows only tvm-ffi's interface."""
        return f"{fullname.replace('.', '/')}.so"

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        architecture = self.get_finalized_command("bdist_wheel").plat_name.removeprefix(_PLATFORM)
        folder = Path("build/native", architecture)
        for each in (target.parent, folder):
            each.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished.so")
        stub = folder / "libtvm_ffi.so"
        _zig("cc", architecture, "-shared", "-nostdlib", f"-Wl,-soname,{stub.name}", "-o", stub, _stub(folder))
        options = ["-shared", *_FLAGS, "-I.", "-isystem", _HEADERS, f"-L{folder}", "-ltvm_ffi", "-s"]
        _zig("c++", architecture, *_units(ext.sources, folder), *options, "-o", unfinished)
        unfinished.replace(target)  # a process that runs the old one keeps it


def _zig(command: str, architecture: str, *arguments: object) -> None:
    target = f"{architecture}-linux-gnu.{_GLIBC}"
    subprocess.run([sys.executable, "-m", "ziglang", command, "-target", target, *map(str, arguments)], check=True)


def _units(sources: Sequence[str], folder: Path) -> Iterable[Path]:
    """Two files that include all others: most of the time goes into reading the headers of C++ and of tvm-ffi, which
    each file would do again. The price: names in anonymous namespaces must differ within a unit.
    """
    is_grpc = {source: source.startswith((str(_SOURCES / "grpc"), str(_SOURCES / "h2"))) for source in sources}
    for name, wanted in (("grpc", True), ("rest", False)):
        unit = folder / f"{name}.cc"
        unit.write_text("".join(f'#include "{source}"\n' for source in sources if is_grpc[source] is wanted))
        yield unit


def _stub(folder: Path) -> Path:
    """A library with the names of tvm-ffi's C interface, to link against: its own is for one architecture."""
    names = set[str]()
    for header in _HEADERS.rglob("*.h"):
        names.update(re.findall(r"\bTVM_FFI_DLL\s[^;{(]*?\b(TVMFFI\w+)\(", header.read_text()))
    stub = folder / "libtvm_ffi.c"
    stub.write_text("".join(f"void {name}(void) {{}}\n" for name in sorted(names)))
    return stub


setup(
    ext_modules=[
        Extension(
            "service.native.liboctet",
            sources=sorted(map(str, _SOURCES.rglob("*.cc"))),
            depends=sorted(map(str, _SOURCES.rglob("*.h"))),
        )
    ],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": Wheel},
)
