"""Keeps processes of this program running: forks them, and forks them again when they die, until `stop` is called.

Only a process with one thread can fork safely, so the supervisor has no other thread, and loads no library that starts
threads. Its children load the libraries that they need. The children share the supervisor's memory and settings, so
they start without a new interpreter. Each child is connected to the supervisor by one pipe. Through it, the child
reports that it is ready, why it cannot become ready, or that another process is needed. The kernel closes the pipe when
the child ends for any reason.

A child that hangs is killed, and another is started. From the time that it is ready, it must write heartbeats to the
pipe. The `watch` callback finds other kinds of hangs.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.core.errors import NotStarted, OctetError, from_json
from service.core.system.own_threads import own_threads
from service.core.system.usable import unusable
from service.workers.watching import StallClock, thread_of

_logger = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
_HEALTHY_S = 60.0  # a child that lived this long did not fail during its start
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_VM_STATISTICS = Path("/proc/vmstat")
_LOOK_EVERY_S = 0.1  # how often the supervisor checks for a hang
BEAT_EVERY_S = 0.5
_BEATS_OVERDUE_S = 2.0  # if no heartbeat came for this long, the threads of the child are examined
_LAST_WORDS_S = 0.5  # the time between the `last_words` signal and SIGKILL


class Ready:
    """The child's end of its pipe to the supervisor. Calling this object reports that the child is ready."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __call__(self) -> None:
        _write_message(self._pipe, {"ready": True})

    def beat(self) -> None:
        """Reports that the process runs. A process that is ready must call this every `BEAT_EVERY_S`. Never blocks."""
        writable = select.poll()
        writable.register(self._pipe, select.POLLOUT)
        if any(events & select.POLLOUT for _, events in writable.poll(0)):
            _write_message(self._pipe, {"beat": True})

    def works_in(self, pid: int) -> None:
        """Reports that a child of this process works in its place. This process is killed if the child hangs."""
        _write_message(self._pipe, {"worker": pid})

    def want(self) -> None:
        """Requests the process that runs on demand. Does no harm if it is already running."""
        _write_message(self._pipe, {"wanted": True})

    def want_plane(self, tenant: str, wanted: bool) -> None:
        """Requests that the data plane of a tenant be started, or ended if `wanted` is false."""
        _write_message(self._pipe, {"plane": tenant, "wanted": wanted})

    @property
    def descriptor(self) -> int:
        """The descriptor of the pipe. If this process is replaced by another program (exec), that program must keep it
        open, because the supervisor treats the end of the pipe as the end of the process.
        """
        return self._pipe


@dataclass(frozen=True)
class End:
    """Describes the unexpected end of a child.

    Attributes:
        status: the child's exit status; if a signal killed the child, the negative signal number.
        was_ready: true if the child had reported that it was ready.
        error: the error that the child reported, if any.
        starved: true if the kernel probably killed the child for lack of memory.
        hang: why this process killed the child; empty if this process did not kill it.
    """

    status: int
    was_ready: bool
    error: OctetError | None
    starved: bool = False
    hang: str = ""

    def __str__(self) -> str:
        if self.hang:
            return self.hang
        if self.error:
            return self.error.message
        if self.status >= 0:
            return f"exit status {self.status}"
        why = " for want of memory" if self.starved else ""
        return f"signal {-self.status}: {signal.strsignal(-self.status)}{why}"


class SupervisedProcess:
    """Runs one child at a time. Must be used in the event loop of a process that has only one thread."""

    def __init__(
        self,
        name: str,
        main: Callable[[Ready], None],
        *,
        grace_s: float = 10.0,
        keep: Collection[int] = (),
        on_demand: bool = False,
        on_ready: Callable[[], None] = lambda: None,
        on_want: Callable[[], None] = lambda: None,
        on_plane: Callable[[str, bool], None] = lambda tenant, wanted: None,
        on_end: Callable[[End], bool] = lambda end: True,
        silence_s: float = 0.0,
        watch: Callable[[int, float], str] = lambda pid, elapsed_s: "",
        last_words: int | None = None,
    ) -> None:
        """
        Args:
            name: the name of the process in log messages.
            main: the code of the child. The child ends when `main` returns; if `main` raises, the exit status is 1.
            grace_s: how long the child may take to end after SIGTERM before it is killed.
            keep: the sockets and pipes of this process that the child may use too.
            on_demand: true to start the child only when `want` is called. After a normal end it is started again only
                by another call of `want`.
            on_ready: called whenever a child reports that it is ready.
            on_want: called whenever a child requests the process that runs on demand.
            on_plane: called with a tenant whenever a child requests the start or the end of that tenant's data plane.
            on_end: called whenever a child has ended without being stopped; returns true to start another.
            silence_s: a child that is ready is killed if it sends no heartbeat for this long. 0 if it sends none.
            watch: called repeatedly with the child's pid and the seconds since the last call; returns why the child
                must be killed, or an empty string.
            last_words: the signal that makes a child answer its clients and end, after `watch` has found that it hangs.
                A child that does not end soon is killed. None means that it is killed at once.
        """
        self._name, self._main, self._grace_s = name, main, grace_s
        self._kept, self._on_ready, self._on_want, self._on_end = frozenset(keep), on_ready, on_want, on_end
        self._on_plane = on_plane
        self._silence_s, self._watch, self._last_words = silence_s, watch, last_words
        self._beats: StallClock | None = None  # the time since the last heartbeat; None before the child is ready
        self._hang, self._worker = "", 0  # `_worker` is the process that sends heartbeats: the child, or its child
        self._on_demand = on_demand
        self._wanted, self._stopping = asyncio.Event(), asyncio.Event()
        if not on_demand:
            self.want()
        self.pid: int | None = None  # the pid of the running child; None if no child is running

    def want(self) -> None:
        """Starts a child if none is running. The caller repeats this call until the child is ready, because a running
        child may be about to end.
        """
        self._wanted.set()

    async def run(self) -> None:
        """Keeps the child running. After `stop`, returns when the child has ended.

        Raises:
            OctetError: the child ended and must not be started again. The error is the one that the child reported, or
                describes how the child ended.
        """
        pause_s = _FIRST_PAUSE_S
        while await self._is_wanted():
            started_s = time.monotonic()
            end = await self._run_once()
            if self._stopping.is_set():
                return
            if self._on_demand and end.was_ready and end.status == 0:
                self._wanted.clear()
                continue
            if not self._on_end(end):
                raise end.error or NotStarted(f"the {self._name} ended while it started ({end})")
            pause_s = _FIRST_PAUSE_S if time.monotonic() - started_s > _HEALTHY_S else pause_s
            _logger.error("the %s ended (%s); starting another in %.1f s", self._name, end, pause_s)
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def stop(self) -> None:
        """Sends SIGTERM so that the child can end cleanly, and kills it after `grace_s`."""
        self._stopping.set()
        self._wanted.set()  # wakes up `_is_wanted`, which then checks `_stopping`
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)
            asyncio.get_running_loop().call_later(self._grace_s, self._give_up, self.pid)

    def kill(self) -> None:
        """Ends the child at once, with SIGKILL."""
        self._stopping.set()
        self._wanted.set()
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    async def _is_wanted(self) -> bool:
        """Waits until a child is wanted. Returns false if `stop` was called."""
        await self._wanted.wait()
        return not self._stopping.is_set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _give_up(self, pid: int) -> None:
        if self.pid == pid:
            _logger.warning("the %s did not end in %.0f s: killing it", self._name, self._grace_s)
            os.kill(pid, signal.SIGKILL)

    async def _run_once(self) -> End:
        read, write = os.pipe()
        kills = _kills_for_memory()
        try:
            pid = self.pid = self._fork(write)
        finally:
            os.close(write)
        self._beats, self._hang, self._worker = None, "", pid
        reader = asyncio.StreamReader()
        with os.fdopen(read, "rb", 0) as pipe:
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
            watching = asyncio.create_task(self._look_for_hangs(pid))
            was_ready, error = False, None
            try:
                async for line in _lines(reader):
                    match _members(line):
                        case {"beat": True}:
                            self._restart_clock()
                        case {"error": dict(members)}:
                            error = from_json(members)
                        case {"plane": str(tenant), "wanted": bool(wanted)}:
                            self._on_plane(tenant, wanted)
                        case {"worker": int(worker)}:
                            self._worker = worker
                        case {"wanted": True}:
                            self._on_want()
                        case {"ready": True}:
                            was_ready = True
                            self._restart_clock()
                            if not self._stopping.is_set():
                                self._on_ready()
            finally:
                watching.cancel()
        self.pid = None
        os.kill(pid, signal.SIGKILL)  # the child closed its end of the pipe, so it is ending anyway
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        starved = not self._hang and status == -signal.SIGKILL and _kills_for_memory() > kills
        return End(status, was_ready, error, starved, self._hang)

    def _restart_clock(self) -> None:
        self._beats = StallClock(min(_BEATS_OVERDUE_S, self._silence_s / 2), counts_stops=True)

    async def _look_for_hangs(self, pid: int) -> None:
        before_s = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now_s = time.monotonic()
            # If this process did not run during that time either, the child is not to blame.
            elapsed_s, before_s = min(now_s - before_s, 2 * _LOOK_EVERY_S), now_s
            if self._stopping.is_set():  # the child still has `grace_s` to end
                continue
            if hang := self._watch(pid, elapsed_s):
                await self._kill_hung(pid, hang, self._last_words)
            elif hang := self._silent_for(self._worker, elapsed_s):
                await self._kill_hung(pid, hang, None)

    def _silent_for(self, pid: int, elapsed_s: float) -> str:
        """Returns why the child must be killed if it has sent no heartbeat for too long, otherwise an empty string."""
        if self._beats is None or self._silence_s == 0:
            return ""
        self._beats.add(elapsed_s, pid, pid)
        if self._beats.total_s <= self._silence_s:
            return ""
        main = thread_of(pid, pid)
        why = ", stopped by a signal" if main is not None and main.state == "T" else ""
        return f"it sent no heartbeat for {self._beats.total_s:.1f} s{why}"

    async def _kill_hung(self, pid: int, hang: str, last_words: int | None) -> None:
        self._hang = hang
        _logger.error("the %s hangs and is being killed: %s", self._name, hang)
        if last_words is not None:
            os.kill(pid, last_words)
            await asyncio.sleep(_LAST_WORDS_S)
        os.kill(pid, signal.SIGKILL)
        await asyncio.Event().wait()  # waits until the pipe is closed, which cancels this task

    def _fork(self, pipe: int) -> int:
        threads = own_threads()
        if threads > 1:
            raise RuntimeError(f"cannot fork the {self._name} from a process with {threads} threads")
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        # without this, the child could receive a signal before it has reset its handlers
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._be_child(parent, pipe)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        return pid

    def _be_child(self, parent: int, pipe: int) -> None:
        """Runs the child's code. Never returns."""
        status = 1
        try:
            _leave(parent, {*self._kept, pipe}, self._name)
            self._main(Ready(pipe))
            status = 0
        except OctetError as error:
            _write_message(pipe, {"error": error.to_json()})
        except OSError as error:
            if error.filename is None:
                _logger.exception("the %s failed with an unexpected error", self._name)
            else:
                _logger.debug("the %s ended", self._name, exc_info=error)
                _write_message(pipe, {"error": unusable(Path(os.fsdecode(error.filename)), error).to_json()})
        except BaseException:
            _logger.exception("the %s failed with an unexpected error", self._name)
        finally:
            logging.shutdown()
            os._exit(status)  # the child must not run the exit handlers of the parent


def _leave(parent: int, keep: Collection[int], name: str) -> None:
    """Separates a forked child from its parent, but makes the child end when its parent ends. Sets the name that `ps -o
    comm` shows.
    """
    os.setpgid(0, 0)  # Ctrl-C in the terminal is then sent only to the parent, which stops its children
    # a process group in the background may still write logs to the terminal
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    for path in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(path.name)
        if descriptor > 2 and descriptor not in keep and _is_channel(path):
            os.close(descriptor)  # a connection or a port must not stay open after the parent has closed it
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_NAME, name.replace(" ", "-").encode())
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # sends SIGTERM when the parent dies for any reason
    if os.getppid() != parent:  # the parent died before prctl was called
        os._exit(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yields whole lines. Skips text that is too long for a line, because a child may run code that writes anything."""
    while True:
        try:
            line = await reader.readuntil()
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError as error:
            await reader.readexactly(error.consumed)
            continue
        yield line


def _members(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_channel(path: Path) -> bool:
    try:
        return str(path.readlink()).startswith(("socket:", "pipe:", "anon_inode:"))
    except FileNotFoundError:  # this was the descriptor with which the folder itself was read
        return False


def _kills_for_memory() -> int:
    """Returns the number of processes of any user that the kernel has killed for lack of memory; 0 if the kernel does
    not count them.
    """
    try:
        lines = _VM_STATISTICS.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def _write_message(pipe: int, what: object) -> None:
    with suppress(BrokenPipeError):  # the parent has died; this process is about to get SIGTERM because of that
        os.write(pipe, json.dumps(what).encode() + b"\n")
