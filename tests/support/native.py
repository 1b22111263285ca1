"""Compiles the C++ programs in `tests/native` with the product's options. Also runs the echo server, which is one of
them.

They are linked with the C++ library from the last build of the product. Otherwise zig would compile that library, which
takes more than a minute on one core.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import GIVE_UP_S

_ROOT = Path(__file__).parents[2]
_PLANE = _ROOT / "service" / "native" / "plane"
_TESTS = _ROOT / "tests" / "native"
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_BUILT = _ROOT / "build" / "native" / platform.machine()
_LIBRARY = sorted((_BUILT / "CMakeFiles" / "octet_libcxx.dir").rglob("*.o"))
# The compiler with which the product is built.
PRODUCTS = (sys.executable, "-m", "ziglang", "c++", "-O2")
_LINKER = (sys.executable, "-m", "ziglang", "cc")  # links only the given files, without a C++ library
_TARGET = ("-target", f"{platform.machine()}-linux-gnu.2.28")  # the same as in cmake/zig.cmake


def compile_h2(program: str, directory: Path, compiler: tuple[str, ...] = PRODUCTS) -> Path:
    """Compiles `tests/native/h2/PROGRAM.cc` with the HTTP/2 session, and returns the path in `directory`."""
    return _compile(_TESTS / "h2" / f"{program}.cc", directory, sorted((_PLANE / "h2").glob("*.cc")), compiler)


def compile_queue(program: str, directory: Path) -> Path:
    """Compiles `tests/native/queue/PROGRAM.cc`, and returns the path in `directory`."""
    return _compile(_TESTS / "queue" / f"{program}.cc", directory)


def compile_plane(program: Path, directory: Path, sources: Sequence[str], compiler: tuple[str, ...] = PRODUCTS) -> Path:
    """Compiles a test program and `sources` of the data plane, given by their paths in its folder without `.cc`."""
    return _compile(program, directory, [_PLANE / f"{source}.cc" for source in sources], compiler)


def _compile(
    program: Path, directory: Path, sources: Sequence[Path] = (), compiler: tuple[str, ...] = PRODUCTS
) -> Path:
    options = ["-std=c++20", *_WARNINGS, f"-I{_PLANE}", f"-I{_PLANE.parent}"]
    return build([*sources, program], directory / program.stem, options, compiler=compiler)


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
    assert done.returncode == 0, done.stderr


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
