"""Builds the native libraries of `service.native`, by the compiler that is among the locked requirements.

They need nothing of CPython but its stable ABI, so one wheel for each architecture serves every Python: `make wheel`.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ziglang
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

_RUNTIME = Path("service/native/runtime")
_PYTHON = Path("service/native/python")
_FUSED = Path("service/native/fused")
_ZIG = Path(ziglang.__file__).parent / "lib"
_GLIBC = "2.28"  # the oldest that the wheels of apache-tvm-ffi run on
_PLATFORM = f"manylinux_{_GLIBC.replace('.', '_')}_"
_FLAGS = ["-O2", "-g0", "-fPIC", "-pthread", "-fvisibility=hidden"]

# The parts of C++'s library that the native one uses. zig would compile all of it, file by file: a minute of one core
# in each new environment. The macros are those of zig's own build, but for two: definitions for programs that were
# compiled with older headers are left out (they contradict today's), and so is the demangler of `terminate`.
_STANDARD = [
    *("-std=c++23", "-w", "-ffunction-sections", "-fdata-sections", "-fvisibility-inlines-hidden"),
    *("-D_LIBCPP_BUILDING_LIBRARY", "-D_LIBCXXABI_BUILDING_LIBRARY", "-DLIBCXX_BUILDING_LIBCXXABI"),
    *("-D_LIBCPP_AVAILABILITY_MINIMUM_HEADER_VERSION=99", "-DLIBCXXABI_NON_DEMANGLING_TERMINATE"),
    *(f"-I{_ZIG}/libcxx/src", f"-I{_ZIG}/libcxx/libc", f"-I{_ZIG}/libcxxabi/include"),
    "-DLIBC_NAMESPACE=__llvm_libc_common_utils",
]
_LIBCXX = (
    "algorithm call_once charconv chrono condition_variable error_category exception functional future hash ios "
    "ios.instantiations iostream locale memory mutex new_handler new_helpers ostream random ryu/d2fixed ryu/d2s "
    "ryu/f2s stdexcept string system_error thread typeinfo variant verbose_abort"
)
_LIBCXXABI = (
    "abort_message cxa_aux_runtime cxa_default_handlers cxa_exception cxa_exception_storage cxa_guard cxa_handlers "
    "cxa_personality cxa_thread_atexit cxa_vector cxa_virtual fallback_malloc private_typeinfo stdlib_exception "
    "stdlib_new_delete stdlib_stdexcept stdlib_typeinfo"
)

_PLANE = Path("service/native/plane")
# Rooms that are compiled together.
_PLANE_ROOMS = ("request text answer", "queue control tls", "net h2")
_PLANE_OPTIONS = [
    *("-std=c++20", "-Wall", "-Wextra", "-Werror", "-I.", f"-I{_PLANE}", "-Iservice/native"),
]
_PLANE_PROGRAM = "service.native.octet-plane"

_RUNTIME_LIBRARY = "service.native.liboctet_runtime"
_PYTHON_LIBRARY = "service.native.liboctet_python"
_FUSED_LIBRARY = "service.native.liboctet_fused"
# They use nothing of the C++ library but what its headers define.
_SMALL = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I.", "-fno-exceptions", "-fno-rtti"]
_DEFINED = "-Wl,-z,defs"  # every symbol is one of a library that is linked
_RUNTIME_LINKED = [
    f"-Wl,--version-script={_RUNTIME / 'exports.map'}",
    "-Wl,-soname,liboctet_runtime.so",
    "-Wl,-z,nodelete",  # its workers live as long as the process
    _DEFINED,
]
_PYTHON_LINKED = [
    f"-Wl,--version-script={_PYTHON / 'exports.map'}",
    "-Wl,-z,undefs",  # the interpreter that loads it defines what is CPython's
]
_FUSED_LINKED = [f"-Wl,--version-script={_FUSED / 'exports.map'}", _DEFINED, "-lm"]


class Wheel(bdist_wheel):
    """`--plat-name manylinux_2_28_aarch64` builds for another architecture than this machine's."""

    def finalize_options(self) -> None:
        self.plat_name = self.plat_name or _PLATFORM + platform.machine()
        if self.plat_name not in (_PLATFORM + "x86_64", _PLATFORM + "aarch64"):
            raise SystemExit(f"wheels are for {_PLATFORM}x86_64 and {_PLATFORM}aarch64, not {self.plat_name}")
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", self.plat_name


class BuildNative(build_ext):
    """Takes half a minute of two cores, the first time on a machine."""

    def get_ext_filename(self, fullname: str) -> str:
        """Not of one Python: the libraries know none, or only its stable interface."""
        return fullname.replace(".", "/") + ("" if _PLANE_PROGRAM.endswith(fullname) else ".so")

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        architecture = self.get_finalized_command("bdist_wheel").plat_name.removeprefix(_PLATFORM)
        folder = Path("build/native", architecture)
        for each in (target.parent, folder):
            each.mkdir(parents=True, exist_ok=True)
        with_runtime: list[object] = [f"-L{target.parent}", "-loctet_runtime", "-Wl,-rpath,$ORIGIN"]
        if ext.name == _RUNTIME_LIBRARY:
            units, libraries = [Unit("runtime", ext.sources, _SMALL)], list[object](_RUNTIME_LINKED)
        elif ext.name == _PYTHON_LIBRARY:
            units, libraries = [Unit("python", ext.sources, _SMALL)], [*_PYTHON_LINKED, *with_runtime]
        elif ext.name == _FUSED_LIBRARY:
            units, libraries = [Unit("fused", ext.sources, _SMALL)], list[object](_FUSED_LINKED)
        else:
            units = [*_plane_units(), *_library_units()]
            libraries = [*with_runtime, "-lunwind", "-ldl", _DEFINED]
        with ThreadPoolExecutor() as pool:
            objects = list(pool.map(partial(_compiled, architecture, folder), units))
        unfinished = target.with_name(f"{target.name}.unfinished")
        kind = [] if ext.name == _PLANE_PROGRAM else ["-shared"]
        _zig("cc", architecture, *kind, *_FLAGS, *objects, *libraries, "-s", "-o", unfinished)
        unfinished.replace(target)  # a process that runs the old one keeps it


def _zig(command: str, architecture: str, *arguments: object) -> None:
    target = f"{architecture}-linux-gnu.{_GLIBC}"
    subprocess.run([sys.executable, "-m", "ziglang", command, "-target", target, *map(str, arguments)], check=True)


@dataclass(frozen=True)
class Unit:
    """A file that includes `sources`: most of the time goes into reading the headers of C++, which each of them would
    do again. The price: names in anonymous namespaces must differ within a unit.
    """

    name: str
    sources: Sequence[object]
    options: Sequence[object]


def _plane_units() -> list[Unit]:
    others = {
        "queue control tls": [_RUNTIME / "sha256.cc"],
        "net h2": [_PLANE / "main.cc"],
    }
    return [
        Unit(
            "plane_" + rooms.split()[0],
            [source for room in rooms.split() for source in sorted((_PLANE / room).glob("*.cc"))]
            + others.get(rooms, []),
            _PLANE_OPTIONS,
        )
        for rooms in _PLANE_ROOMS
    ]


def _library_units() -> list[Unit]:
    """C++'s own library."""
    abi = [f"{_ZIG}/libcxxabi/src/{name}.cpp" for name in _LIBCXXABI.split()]
    return [
        Unit("libcxx", [f"{_ZIG}/libcxx/src/{name}.cpp" for name in _LIBCXX.split()], _STANDARD),
        # The last file declares `condition_variable` anew, which no header may have done before.
        Unit("libcxxabi", [*abi, f"{_ZIG}/libcxx/src/condition_variable_destructor.cpp"], _STANDARD),
    ]


def _compiled(architecture: str, folder: Path, unit: Unit) -> Path:
    source, compiled = folder / f"{unit.name}.cc", folder / f"{unit.name}.o"
    source.write_text("".join(f'#include "{each}"\n' for each in unit.sources))
    _zig("c++", architecture, "-c", *_FLAGS, *unit.options, source, "-o", compiled)
    return compiled


setup(
    ext_modules=[
        Extension(
            _RUNTIME_LIBRARY,
            sources=sorted(map(str, _RUNTIME.rglob("*.cc"))),
            depends=sorted(map(str, [*_RUNTIME.rglob("*.h"), _RUNTIME / "exports.map"])),
        ),
        Extension(
            _PYTHON_LIBRARY,
            sources=sorted(map(str, _PYTHON.glob("*.cc"))),
            depends=sorted(map(str, [*_PYTHON.glob("*.h"), _PYTHON / "exports.map"])),
        ),
        Extension(
            _FUSED_LIBRARY,
            sources=sorted(map(str, _FUSED.glob("*.cc"))),
            depends=[str(_FUSED / "exports.map")],
        ),
        Extension(
            _PLANE_PROGRAM,
            sources=sorted(map(str, _PLANE.rglob("*.cc"))),
            depends=sorted(map(str, _PLANE.rglob("*.h"))),
        ),
    ],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": Wheel},
)
