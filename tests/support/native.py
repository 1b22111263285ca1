"""C++ of `tests/native`, compiled as the product's is, and the echo server among it.

Linked with C++'s library as the last build of the product left it: zig would compile all of that, which takes more than
a minute of a core where nobody did before.
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
# What compiles the product.
PRODUCTS = (sys.executable, "-m", "ziglang", "c++", "-O2")
_LINKER = (sys.executable, "-m", "ziglang", "cc")  # links what it is given, and no library of C++ beside it
_TARGET = ("-target", f"{platform.machine()}-linux-gnu.2.28")  # of cmake/zig.cmake


def compile_h2(program: str, directory: Path, compiler: tuple[str, ...] = PRODUCTS) -> Path:
    """`tests/native/h2/PROGRAM.cc` with the HTTP/2 session, in `directory`."""
    return _compile(_TESTS / "h2" / f"{program}.cc", directory, sorted((_PLANE / "h2").glob("*.cc")), compiler)


def compile_queue(program: str, directory: Path) -> Path:
    """`tests/native/queue/PROGRAM.cc` in `directory`."""
    return _compile(_TESTS / "queue" / f"{program}.cc", directory)


def compile_plane(program: Path, directory: Path, sources: Sequence[str], compiler: tuple[str, ...] = PRODUCTS) -> Path:
    """A program of the tests, with `sources` of the data plane: names below its folder, without their ends."""
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
        compiler: of C++; by default, and where a build of the product is, with that build's library.
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
    """The port of a running `echo_server.cc`, which has to end as it should."""
    arguments = [f"{name}={value}" for name, value in options.items()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([program, *arguments], text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            status = process.wait(timeout=GIVE_UP_S)
    assert status == 0  # neither a signal nor a sanitizer's finding
