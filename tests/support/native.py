"""C++ of `tests/native`, compiled as the product's is, and the echo server among it."""

from __future__ import annotations

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
_ZIG = (sys.executable, "-m", "ziglang", "c++", "-O2")


def compile_h2(program: str, directory: Path, compiler: tuple[str, ...] = _ZIG) -> Path:
    """`tests/native/h2/PROGRAM.cc` with the HTTP/2 session, in `directory`; one unit, in a third of the time."""
    session = [f"-include{source}" for source in sorted((_PLANE / "h2").glob("*.cc"))]
    return _compile(_TESTS / "h2" / f"{program}.cc", directory, compiler, session)


def compile_queue(program: str, directory: Path) -> Path:
    """`tests/native/queue/PROGRAM.cc` in `directory`."""
    return _compile(_TESTS / "queue" / f"{program}.cc", directory, _ZIG)


def compile_plane(program: Path, directory: Path, sources: Sequence[str], compiler: tuple[str, ...] = _ZIG) -> Path:
    """A program of the tests, with `sources` of the data plane: names below its folder, without their ends."""
    included = [str(_PLANE / f"{source}.cc") for source in sources]
    return _compile(program, directory, compiler, [*included, "-ldl"])


def _compile(source: Path, directory: Path, compiler: Sequence[str], included: Sequence[str] = ()) -> Path:
    output = directory / source.stem
    folders = [f"-I{_PLANE}", f"-I{_PLANE.parent}"]
    command = [*compiler, "-std=c++20", *_WARNINGS, *folders, *included, str(source), "-o", str(output)]
    compiled = subprocess.run(command, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr
    return output


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
