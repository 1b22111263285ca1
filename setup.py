"""Builds the native library of `service.native`, by the compiler that is among the locked requirements."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import tvm_ffi.libinfo
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_SOURCES = Path("service/native/src")
_GLIBC = "2.28"  # the oldest that the wheels of tvm-ffi run on
_FLAGS = [
    "-std=c++17",
    "-O2",
    "-g0",
    "-fPIC",
    "-shared",
    "-pthread",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
]


class BuildNative(build_ext):
    """One command: it takes half a minute, and on a new machine, which builds libc++ too, a whole one."""

    def get_ext_filename(self, fullname: str) -> str:
        """Not of one Python: the library knows only tvm-ffi's interface."""
        return f"{fullname.replace('.', '/')}.so"

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
        unfinished = target.with_suffix(".unfinished.so")
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "c++",
            "-target",
            f"{platform.machine()}-linux-gnu.{_GLIBC}",
            *_FLAGS,
        ]
        command += ["-isystem", tvm_ffi.libinfo.find_include_path(), *ext.sources]
        command += ["-L", str(library.parent), "-ltvm_ffi", "-s", "-o", str(unfinished)]
        subprocess.run(command, check=True)
        unfinished.replace(target)  # who runs the old one goes on


setup(
    ext_modules=[
        Extension(
            "service.native.liboctet",
            sources=sorted(map(str, _SOURCES.rglob("*.cc"))),
            depends=sorted(map(str, _SOURCES.rglob("*.h"))),
        )
    ],
    cmdclass={"build_ext": BuildNative},
)
