"""The parent of a child is killed, changes its credentials, is stopped, or loses track of the child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from service.compiler.sandbox import check
from tests.support.child_process import is_running, read_line
from tests.support.sandbox import attempt, handlers
from tests.support.waiting import GIVE_UP_S, eventually

pytestmark = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)

FOREVER_S = 10 * GIVE_UP_S  # longer than any test waits, so that no child ends by itself

# Code of a parent process. `start` runs a child until it ends. `told` receives the child's pid once the child is
# sandboxed.
PARENT = """
    import os, sys, threading, time
    from pathlib import Path
    from service.compiler.sandbox import Access, Limits, process, run_child, run_program
    from service.core.errors import OctetError
    role, handlers, scratch, wall_s = sys.argv[1:5]
    process._ALONE_S = 1.0
    limits = Limits(float(wall_s), 600, 1 << 30, 1 << 20)

    def told(message):
        print(message["log"], flush=True)

    def start():
        try:
            readable, writable = (Path(handlers),), (Path(scratch),)
            if role == "program":
                access = Access((), writable, (*readable, *Path("/").glob("lib*/ld-*.so.*")))
                run_program([handlers, "1000"], access=access, limits=limits)
            run_child(role, {}, access=Access(readable, writable), limits=limits,
                      handlers=Path(handlers), on_message=told)
        except OctetError as error:
            print(error.code, flush=True)

"""
FROM_THE_MAIN_THREAD = "start()"
FROM_ANOTHER_THREAD = "threading.Thread(target=start).start(); time.sleep(1000)"
AND_BECOMES_NOBODY = """
    def told(message):
        os.setresuid(65534, 65534, 65534)
        print(message["log"], flush=True)
    start()
"""


@contextmanager
def parent(
    scratch: Path, role: str, then: str = FROM_THE_MAIN_THREAD, wall_s: float = FOREVER_S
) -> Iterator[subprocess.Popen[str]]:
    script = textwrap.dedent(PARENT) + textwrap.dedent(then)
    file = "/bin/sleep" if role == "program" else str(handlers(role))
    command = [sys.executable, "-c", script, role, file, str(scratch), str(wall_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ends(pid: int) -> None:
    """Waits until the process has ended. If it does not end, kills it and fails the test."""
    try:
        eventually(lambda: not is_running(pid))
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise


@pytest.mark.parametrize("role", ["hang", "stop", "spin", "spin_natively", "cut_the_parent_death_pipe"])
def test_a_child_dies_with_its_parent_whatever_it_does(scratch: Path, role: str) -> None:
    with parent(scratch, role) as process:
        child = int(read_line(process))
        assert is_running(child)
        process.kill()
        ends(child)


def test_a_child_started_by_a_thread_dies_with_the_process(scratch: Path) -> None:
    with parent(scratch, "hang", FROM_ANOTHER_THREAD) as process:
        child = int(read_line(process))
        assert is_running(child)
        process.kill()
        ends(child)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_a_child_dies_even_if_its_parent_may_not_signal_it(scratch: Path) -> None:
    with parent(scratch, "hang", AND_BECOMES_NOBODY) as process:
        child = int(read_line(process))
        assert is_running(child)
        process.kill()
        ends(child)


def test_a_program_dies_with_its_parent(scratch: Path) -> None:
    with parent(scratch, "program") as process:
        program = only_child(process.pid, "sleep")
        process.kill()
        ends(program)


@pytest.mark.parametrize("role", [pytest.param("hang", marks=pytest.mark.slow), "program"])
def test_a_child_ends_in_time_although_its_parent_is_stopped(scratch: Path, role: str) -> None:
    with parent(scratch, role, wall_s=6) as process:  # starting takes a tenth of that
        child = only_child(process.pid, "sleep") if role == "program" else int(read_line(process))
        process.send_signal(signal.SIGSTOP)
        ends(child)
        process.send_signal(signal.SIGCONT)
        assert read_line(process) == "build_timed_out"


def test_a_child_that_was_lost_during_its_start_dies(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            started.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        attempt(scratch, "hang")
    (child,) = started
    assert child.wait(timeout=GIVE_UP_S) != 0


def only_child(pid: int, name: str) -> int:
    """Waits until the child of `pid` has become the program `name`, and returns its pid."""
    found: list[int] = []

    def is_there() -> bool:
        for status in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError):
                lines = status.read_text().splitlines()
                if f"PPid:\t{pid}" in lines and f"Name:\t{name}" in lines:
                    found.append(int(status.parent.name))
        return bool(found)

    eventually(is_there)
    return found[0]
