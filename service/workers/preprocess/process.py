"""The preprocessing process. The supervisor forks its parent, the starter, when a data plane requests it.

The starter imports the libraries, never reads a request, and forks the process. So the next one starts in milliseconds
if a hostile request has ended one. The process connects to one data plane, gives up its rights, and then answers
questions until the data plane ends. If it dies or is killed because it hangs, the data plane repeats its questions to
the next process.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from service.compiler.sandbox.check import check
from service.compiler.sandbox.kernel import prctl
from service.compiler.sandbox.lockdown import close_calls, close_files
from service.compiler.sandbox.policy import UNLIMITED_BYTES, Access, Limits
from service.core.errors import NotStarted
from service.workers.preprocess.answers import Answers
from service.workers.preprocess.text_processes import fork_text_processes
from service.workers.supervised import BEAT_EVERY_S, Ready

_logger = logging.getLogger(__name__)
_LEFT, _UNREACHABLE = 3, 4  # exit statuses: another process has to continue; the data plane cannot be reached
_MOST_DEATHS, _DEATHS_S = 5, 60.0  # if more processes die within this time, the supervisor starts the next one, later
_PR_SET_PDEATHSIG = 1
_CHECK_EVERY_S = 0.1  # how often the time limits of requests are checked
_NO_LIMIT_S = 10 * 365 * 86400.0
# The files that wait (256 MB), the largest picture with its copies (0.6 GB), and installed code.
_MEMORY_BYTES = 2 << 30
_THREAD_BYTES = 128 << 20  # the address space that the C library reserves for a thread


def run(address: bytes, ready: Ready) -> None:
    """Answers the questions of the data plane whose Unix socket has this address, until the data plane ends.

    Must be called in a process with one thread, which becomes the starter.

    Raises:
        NotStarted: no data plane can be reached at `address`, or the process dies again and again.
    """
    for finding in check():
        if not finding.available:
            _logger.warning("no %s (%s): pictures are decoded without it", finding.name, finding.detail)
    _import_libraries()
    gc.collect()
    gc.freeze()  # otherwise, garbage collection in a process would write to all shared pages
    deaths: deque[float] = deque(maxlen=_MOST_DEATHS)
    has_served = False
    while True:
        pid = _fork(address, ready)
        ready.works_in(pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == 0 or (status == _UNREACHABLE and has_served):
            return
        if status == _UNREACHABLE:
            raise NotStarted("the data plane cannot be reached")
        has_served = True
        if status == _LEFT:
            continue
        end = f"signal {-status}: {signal.strsignal(-status)}" if status < 0 else f"exit status {status}"
        if len(deaths) == _MOST_DEATHS and deaths[0] > time.monotonic() - _DEATHS_S:
            raise NotStarted(f"it died {_MOST_DEATHS + 1} times within {_DEATHS_S:.0f} s, the last time by {end}")
        deaths.append(time.monotonic())
        _logger.error("a preprocessing process died (%s); starting another", end)


def _fork(address: bytes, ready: Ready) -> int:
    """Forks the process that does the work, and returns its id."""
    starter = os.getpid()
    if pid := os.fork():
        return pid
    status = 1
    try:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == starter:  # otherwise the starter had ended before the first line
            status = _work(address, ready)
    except BaseException:
        _logger.exception("the preprocessing process failed with an unexpected error")
    finally:
        logging.shutdown()
        os._exit(status)


def _work(address: bytes, ready: Ready) -> int:
    """Locks this process in, and answers questions. Returns its exit status."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address)
    except OSError:
        return _UNREACHABLE
    connection.setblocking(False)
    limits = _limits()
    close_files(Access(), limits, allow_unsandboxed=True)
    close = partial(close_calls, limits)
    text_processes = fork_text_processes(lambda its: _run(lambda: answer(its), close))

    def start() -> None:
        close()
        ready()

    return _LEFT if _run(lambda: answer(connection, ready.beat, text_processes), start) else 0


def _run(main: Callable[[], Coroutine[Any, Any, bool]], start: Callable[[], Any]) -> bool:
    """Calls `start` when the event loop has all files that it needs. Then runs `main`, and returns its result."""
    # epoll would need more system calls
    runner = asyncio.Runner(loop_factory=partial(asyncio.SelectorEventLoop, selectors.PollSelector()))
    runner.get_loop()  # creates the sockets that the event loop needs for itself
    start()
    return runner.run(main())  # closing the runner would wait for threads that never end; the process ends instead


async def answer(
    connection: socket.socket, beat: Callable[[], None] = lambda: None, text_processes: Sequence[socket.socket] = ()
) -> bool:
    """Answers the questions that come over `connection`, until the other end closes it, or work exceeds a time limit.
    Then another process has to continue, and this function returns true. Owns the sockets.

    Args:
        beat: called at least twice a second.
        text_processes: the sockets of the text processes. If empty, this process tokenizes texts itself.
    """
    is_lost, wakes = False, asyncio.Event()

    def lose() -> None:
        nonlocal is_lost
        is_lost = True
        wakes.set()

    answers = Answers(connection, lose, text_processes, wakes.set)
    try:
        while not is_lost:
            beat()
            if await answers.leave_if_overdue():
                _logger.warning("a request took too long to preprocess: the process ends, and another one is started")
                break
            wakes.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_EVERY_S if answers.is_busy else BEAT_EVERY_S):
                    await wakes.wait()
    finally:
        answers.close()
    return answers.has_left


def _limits() -> Limits:
    threads = len(os.sched_getaffinity(0)) + 8
    return Limits(
        wall_s=_NO_LIMIT_S,
        cpu_s=_NO_LIMIT_S,
        memory_bytes=_MEMORY_BYTES + threads * _THREAD_BYTES,
        file_bytes=UNLIMITED_BYTES,  # it can open no file for writing, but its log may be a file
        threads=threads,
        connected=True,
    )


def _import_libraries() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy would start a thread for each core
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # and so would the tokenizers
    for name in ("soundfile", "soxr", "tokenizers"):
        with suppress(ImportError):  # a data plane alone is installed without them, and refuses sounds and texts
            importlib.import_module(name)

    import service.runtime.image
    import service.runtime.sound
    import service.runtime.table
    import service.workers.preprocess.texts  # noqa: F401
