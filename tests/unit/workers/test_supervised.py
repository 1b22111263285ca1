"""Tests of a child process that is restarted, and that ends with its parent. Supervisors fork, so each runs in its own
process.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.child_process import ROOT, is_running
from tests.support.waiting import GIVE_UP_S, eventually

PARENT = """
import asyncio, json, os, pathlib, signal, sys, time
from service.core.errors import NotFound
from service.workers import supervised
from service.workers.supervised import SupervisedProcess

def obedient(ready):
    ready()
    time.sleep(1000)

def stubborn(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    time.sleep(1000)

def at_once(ready):
    pass

def in_vain(ready):
    raise NotFound("no such thing")

def crashing(ready):
    os.kill(os.getpid(), signal.SIGSEGV)

def starving(ready):
    ready()
    supervised._VM_STATISTICS.write_text("nr_free_pages 1\\noom_kill 3\\n")  # as the kernel does
    os.kill(os.getpid(), signal.SIGKILL)

def wanting(ready):
    signal.signal(signal.SIGUSR1, lambda *_: ready.want())
    ready()
    while True:
        time.sleep(1000)

def beating(ready):
    ready()
    while not muted.exists():
        ready.beat()
        time.sleep(0.05)
    time.sleep(1000)

def silent(ready):
    ready()
    time.sleep(1000)

def talking_nonsense(ready):
    os.write(ready.descriptor, b"\\xff\\xfe\\n[1]\\n" + b"x" * 200_000 + b"\\n" + b"[" * 60_000 + b"\\n")
    ready()
    time.sleep(1000)

def giving_up(ready):
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(4))
    ready()
    time.sleep(1000)

def brief(ready):
    ready()

def killed_once(ready):
    ready()
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def say(**what):
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)

def ended(end):
    say(end=str(end), was_ready=end.was_ready)
    return sys.argv[2] != "once"

async def main():
    watched = {"silence_s": 0.5} if sys.argv[1] in ("beating", "silent") else {}
    if sys.argv[2] == "hangs":
        watched = {"watch": lambda pid, elapsed_s: "it hangs", "last_words": signal.SIGUSR1}
    child = SupervisedProcess(
        "child", globals()[sys.argv[1]], grace_s=0.3, on_ready=lambda: say(ready=child.pid), on_end=ended, **watched
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, child.stop)
    try:
        await child.run()
    except Exception as error:
        say(error=str(error))
    say(over=True)

async def two():
    other = SupervisedProcess(
        "other", globals()[sys.argv[2]], on_demand=True, on_ready=lambda: say(other=other.pid), on_end=ended
    )
    child = SupervisedProcess("child", wanting, on_want=other.want, on_ready=lambda: say(ready=child.pid))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: (child.stop(), other.stop()))
    await asyncio.gather(child.run(), other.run())
    say(over=True)

if len(sys.argv) > 3:
    muted = pathlib.Path(sys.argv[3])
    marker = supervised._VM_STATISTICS = pathlib.Path(sys.argv[3])
if sys.argv[1] == "two":
    main = two
asyncio.run(main())
"""


class Supervised:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def says(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        document: dict[str, Any] = json.loads(self.process.stdout.readline())
        return document

    def pauses_s(self) -> list[float]:
        """Returns the pauses before each new child, according to the log of the supervisor, which is then ended."""
        self.process.kill()
        assert self.process.stderr is not None
        return [float(pause) for pause in re.findall(r"starting another in (\S+) s", self.process.stderr.read())]

    def ready(self) -> int:
        return int(self.says()["ready"])


@contextmanager
def supervising(main: str, kind: str = "", *more: str) -> Iterator[Supervised]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, main, kind, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            yield Supervised(process)
        finally:
            process.kill()


def is_reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def ends(pid: int) -> None:
    eventually(lambda: not is_running(pid))


def test_a_killed_child_is_reported_and_restarted() -> None:
    with supervising("obedient") as supervised:
        first = supervised.ready()
        os.kill(first, signal.SIGKILL)
        end = supervised.says()
        assert (end["end"], end["was_ready"]) == ("signal 9: Killed", True)
        second = supervised.says()
        assert second["ready"] != first
        assert supervised.pauses_s() == [0.1]


def test_a_child_that_keeps_dying_is_restarted_ever_more_slowly() -> None:
    with supervising("at_once") as supervised:
        times_s = [supervised.says()["at"] for _ in range(5)]
        announced_s = supervised.pauses_s()
    assert announced_s[:4] == [0.1, 0.2, 0.4, 0.8]
    for (earlier_s, later_s), pause_s in zip(itertools.pairwise(times_s), announced_s, strict=False):
        assert later_s - earlier_s >= pause_s


def test_the_reported_error_is_raised_if_the_child_is_not_restarted() -> None:
    with supervising("in_vain", "once") as supervised:
        assert supervised.says()["end"] == "no such thing"
        assert supervised.says()["error"] == "no such thing"
        assert supervised.says()["over"]


def test_the_exit_status_is_raised_if_the_child_is_not_restarted() -> None:
    with supervising("crashing", "once") as supervised:
        assert supervised.says()["end"] == "signal 11: Segmentation fault"
        assert supervised.says()["error"] == "the child ended while it started (signal 11: Segmentation fault)"


def test_a_child_killed_for_lack_of_memory_is_recognized(tmp_path: Path) -> None:
    statistics = tmp_path / "vmstat"
    statistics.write_text("nr_free_pages 1\noom_kill 2\n")
    with supervising("starving", "", str(statistics)) as supervised:
        supervised.ready()
        assert supervised.says()["end"] == "signal 9: Killed for want of memory"
        supervised.ready()
        # the kernel has not counted another process that it killed for memory
        assert supervised.says()["end"] == "signal 9: Killed"


def test_a_child_that_stops_sending_beats_is_killed(tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    with supervising("beating", "", str(mute)) as supervised:
        first = supervised.ready()
        mute.touch()
        end = supervised.says()
        assert re.fullmatch(r"it sent no heartbeat for \d\.\d s", end["end"])
        ends(first)
        mute.unlink()
        assert supervised.ready() != first


def test_a_ready_child_that_never_sends_a_heartbeat_is_killed() -> None:
    with supervising("silent") as supervised:
        first = supervised.ready()
        assert supervised.says()["end"].startswith("it sent no heartbeat for ")
        ends(first)


def test_a_stopped_child_is_killed(tmp_path: Path) -> None:
    with supervising("beating", "", str(tmp_path / "mute")) as supervised:
        os.kill(supervised.ready(), signal.SIGSTOP)
        assert supervised.says()["end"].endswith(" s, stopped by a signal")


@pytest.mark.parametrize("main", ["giving_up", "stubborn"])
def test_a_hung_child_is_signaled_to_give_up_and_killed_if_it_does_not(main: str) -> None:
    with supervising(main, "hangs") as supervised:
        first = supervised.ready()
        assert supervised.says()["end"] == "it hangs"
        ends(first)
        assert supervised.ready() != first


def test_invalid_messages_are_ignored() -> None:
    with supervising("talking_nonsense") as supervised:
        os.kill(supervised.ready(), signal.SIGKILL)
        assert supervised.says()["end"] == "signal 9: Killed"


def test_stopping_ends_the_child_and_starts_no_other() -> None:
    with supervising("obedient") as supervised:
        pid = supervised.ready()
        supervised.process.terminate()
        assert supervised.says()["over"]
        assert not is_running(pid)


def test_a_child_that_does_not_end_is_killed() -> None:
    with supervising("stubborn") as supervised:
        pid = supervised.ready()
        supervised.process.terminate()
        assert supervised.says()["over"]
        assert not is_running(pid)
        assert "did not end in 0 s" in supervised.process.communicate(timeout=GIVE_UP_S)[1]


def test_a_child_on_demand_runs_only_when_it_is_wanted() -> None:
    with supervising("two", "brief") as supervised:
        child = supervised.ready()
        for _ in range(2):
            os.kill(child, signal.SIGUSR1)
            # A zombie is not enough: until the supervisor has waited for it, a request concerns the old child.
            eventually(functools.partial(is_reaped, supervised.says()["other"]))
        supervised.process.terminate()
        assert supervised.says()["over"]


def test_a_child_on_demand_that_crashed_is_restarted(tmp_path: Path) -> None:
    with supervising("two", "killed_once", str(tmp_path / "marker")) as supervised:
        os.kill(supervised.ready(), signal.SIGUSR1)
        first = supervised.says()["other"]
        assert supervised.says()["end"] == "signal 9: Killed"
        assert supervised.says()["other"] != first


def test_stopping_does_not_wait_for_an_unstarted_child_on_demand() -> None:
    with supervising("two", "brief") as supervised:
        supervised.ready()
        supervised.process.terminate()
        assert supervised.says()["over"]


def test_the_child_ends_when_its_parent_is_killed() -> None:
    with supervising("obedient") as supervised:
        pid = supervised.ready()
        supervised.process.kill()
        eventually(lambda: not is_running(pid))


def test_ctrl_c_in_the_terminal_does_not_reach_the_child() -> None:
    with supervising("obedient") as supervised:
        pid = supervised.ready()
        assert os.getpgid(pid) == pid


def test_the_child_stays_in_the_session_of_its_parent() -> None:
    """If Linux groups processes by session, niceness has an effect only within a session."""
    with supervising("obedient") as supervised:
        assert os.getsid(supervised.ready()) == os.getsid(0)


def test_a_process_with_threads_is_not_forked() -> None:
    program = PARENT.replace("asyncio.run(main())", "import threading; threading.Timer(1000, print).start()")
    program += "\ntry:\n    asyncio.run(main())\nfinally:\n    os._exit(0)\n"
    with subprocess.Popen(
        [sys.executable, "-c", program, "obedient", ""], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert "from a process with 2 threads" in process.stdout.readline()
