"""Builds and runs the C++ programs of `tests/native`, and compiles other C++ sources with the product's compiler.

`tests/native/CMakeLists.txt` describes the programs, as a part of the build of `service/native`. With sanitizers, the
programs have a separate build, with the system's compiler.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from tests.support.waiting import GIVE_UP_S

ROOT = Path(__file__).parents[2]
SANITIZERS = ("address,undefined", "thread")
_SOURCES = ROOT / "service" / "native"
_BUILT = ROOT / "build" / "native" / platform.machine()  # where setup.py builds
_LIBRARY = sorted((_BUILT / "CMakeFiles" / "octet_libcxx.dir").rglob("*.o"))
# The compiler with which the product is built.
PRODUCTS = (sys.executable, "-m", "ziglang", "c++", "-O2")
_LINKER = (sys.executable, "-m", "ziglang", "cc")  # Links only the given files, without a C++ library.
_TARGET = ("-target", f"{platform.machine()}-linux-gnu.2.28")  # The same as in cmake/zig.cmake.


def built_program(name: str, sanitizers: str = "") -> Path:
    """Builds a program of `tests/native/CMakeLists.txt`, and returns its path.

    Args:
        sanitizers: those of the system's compiler, such as one of `SANITIZERS`. Without that compiler, the test is
            skipped.
    """
    return _built(name, sanitizers) / "tests" / name


def built_plane(sanitizers: str) -> Path:
    """Builds the data plane with sanitizers."""
    return _built("octet-plane", sanitizers) / "octet-plane"


def run_ctest(name: str, sanitizers: str = "") -> None:
    """Runs the programs of `tests/native` that check themselves and whose names in CTest begin with `name`."""
    folder = _built("test_programs", sanitizers)
    _run(_tool("ctest"), "--test-dir", folder, "-R", f"^{name}", "-FA", ".", "--no-tests=error", "--output-on-failure")


def _built(target: str, sanitizers: str) -> Path:
    """Builds a target of CMake, and returns the folder of its build."""
    folder = _BUILT.with_name(sanitizers.partition(",")[0]) if sanitizers else _BUILT
    if sanitizers and shutil.which("g++") is None:
        pytest.skip("the sanitizers' runtime comes with a system's compiler, and there is no g++")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        flock(lock, LOCK_EX)  # processes of pytest share the folder
        if sanitizers:
            compilers = ("-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++", f"-DOCTET_SANITIZERS={sanitizers}")
            ninja = ("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}")
            _run(_tool("cmake"), "-S", _SOURCES, "-B", folder, *ninja, *compilers)
        _run(_tool("cmake"), "--build", folder, "--target", target)
    return folder


def _tool(name: str) -> Path:
    """Returns the path of a program among the installed requirements."""
    return Path(sysconfig.get_path("scripts"), name)


def build(
    sources: Sequence[Path],
    output: Path,
    options: Sequence[str],
    linked: Sequence[str] = (),
    compiler: Sequence[str] = PRODUCTS,
) -> Path:
    """Compiles `sources` as one unit, which takes a third of the time, and links it to `output`.

    Args:
        linked: options for the linker.
        compiler: the C++ compiler. The default one uses the C++ library of the product's last build, if there is one.
            Otherwise zig compiles that library, which takes more than a minute of one core the first time.
    """
    *others, last = sources
    unit = [*options, *(f"-include{source}" for source in others), last]
    if compiler is PRODUCTS and _LIBRARY:
        compiled = output.with_suffix(".o")
        _run(*PRODUCTS, *_TARGET, *unit, "-c", "-o", compiled)
        _run(*_LINKER, *_TARGET, compiled, *_LIBRARY, "-lunwind", *linked, "-ldl", "-o", output)
    else:
        _run(*compiler, *unit, *linked, "-ldl", "-o", output)
    return output


def _run(*command: object) -> None:
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def echo_server(program: Path, **options: int) -> Iterator[int]:
    """Runs `echo_server.cc` and yields its port. Checks at the end that it exits with status 0."""
    arguments = [f"{name}={value}" for name, value in options.items()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([program, *arguments], text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            status = process.wait(timeout=GIVE_UP_S)
    assert status == 0  # otherwise, a signal or a sanitizer has ended it
