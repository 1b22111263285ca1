"""Builds the native libraries and the data plane of `service.native` with CMake and Ninja.

`service/native/CMakeLists.txt` describes them. The compiler, CMake and Ninja are among the locked requirements. The
libraries use only the stable ABI of CPython, so one wheel for each architecture serves every Python (`make wheel`).
A third wheel, for the platform `any`, has no native code: it is the client for all other systems.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sysconfig
from pathlib import Path

import ziglang
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

_SOURCES = Path("service/native")
_ZIG = Path(ziglang.__file__).parent / "zig"
_PLATFORM = "manylinux_2_28_"  # the glibc of cmake/zig.cmake
_CLIENT = "any"  # the platform of the wheel without native code
_PROGRAM = "octet-plane"
_LIBRARIES = ("liboctet_runtime", "liboctet_python", "liboctet_fused")


class Wheel(bdist_wheel):
    """`--plat-name manylinux_2_28_aarch64` builds for another architecture than this machine's, `--plat-name any` the
    client.
    """

    def finalize_options(self) -> None:
        self.plat_name = self.plat_name or _PLATFORM + platform.machine()
        if self.plat_name not in (_PLATFORM + "x86_64", _PLATFORM + "aarch64", _CLIENT):
            raise SystemExit(f"wheels are for {_PLATFORM}x86_64, {_PLATFORM}aarch64 and any, not {self.plat_name}")
        if self.plat_name == _CLIENT:
            self.distribution.ext_modules = []
            self.distribution.package_data.pop("service.native")
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", self.plat_name


class BuildNative(build_ext):
    """The first build takes two minutes of processor time; later ones compile only what has changed."""

    def get_ext_filename(self, fullname: str) -> str:
        """Returns a file name without the tag of one Python version."""
        return fullname.replace(".", "/") + ("" if fullname.endswith(_PROGRAM) else ".so")

    def build_extensions(self) -> None:
        architecture = self.get_finalized_command("bdist_wheel").plat_name.removeprefix(_PLATFORM)
        folder = Path("build/native", architecture)
        _run(
            *("cmake", "-G", "Ninja", "-S", _SOURCES, "-B", folder),
            f"-DCMAKE_TOOLCHAIN_FILE={_SOURCES.resolve() / 'cmake/zig.cmake'}",
            f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}",
            *(f"-DZIG={_ZIG}", f"-DOCTET_ARCHITECTURE={architecture}"),
        )
        _run("cmake", "--build", folder, is_shown=self.verbose > 0)
        for extension in self.extensions:
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f"{target.name}.unfinished")
            shutil.copy2(folder / target.name, unfinished)
            unfinished.replace(target)  # a process that runs the old file keeps it


def _run(command: str, *arguments: object, is_shown: bool = False) -> None:
    """Runs a program of the locked requirements. Prints its output if `is_shown`, or else if it fails."""
    output = []
    with subprocess.Popen(
        [_tool(command), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if is_shown:
                print(line, end="", flush=True)
    if process.returncode:
        raise SystemExit(f"{''.join(output)}\n{command} ended with status {process.returncode}")


def _tool(name: str) -> str:
    """Returns the path of a program among the installed requirements."""
    return str(Path(sysconfig.get_path("scripts"), name))


setup(
    ext_modules=[Extension(f"service.native.{name}", sources=[]) for name in (*_LIBRARIES, _PROGRAM)],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": Wheel},
)
