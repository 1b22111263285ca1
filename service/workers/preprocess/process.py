"""The preprocessing process. The supervisor forks it when a data plane requests it.

It connects to one data plane, gives up its rights, and then answers questions until the data plane ends. If it dies or
is killed because it hangs, the data plane repeats its questions to the next process.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import selectors
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from service.compiler.sandbox.check import check
from service.compiler.sandbox.lockdown import close_calls, close_files
from service.compiler.sandbox.policy import UNLIMITED_BYTES, Access, Limits
from service.core.errors import NotStarted
from service.workers.preprocess.answers import Answers
from service.workers.preprocess.text_processes import fork_text_processes
from service.workers.supervised import BEAT_EVERY_S, Ready

_logger = logging.getLogger(__name__)
_CHECK_EVERY_S = 0.1  # how often the time limits of requests are checked
_NO_LIMIT_S = 10 * 365 * 86400.0
# The files that wait (256 MB), the largest picture with its copies (0.6 GB), and installed code.
_MEMORY_BYTES = 2 << 30
_THREAD_BYTES = 128 << 20  # the address space that the C library reserves for a thread


def run(address: bytes, ready: Ready) -> None:
    """Answers the questions of the data plane whose Unix socket has this address, until the data plane ends.

    Must be called in a process with one thread, which it permanently locks in.

    Raises:
        NotStarted: no data plane can be reached at `address`.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address)
    except OSError as error:
        raise NotStarted(f"the data plane cannot be reached: {error.strerror}") from error
    connection.setblocking(False)
    for finding in check():
        if not finding.available:
            _logger.warning("no %s (%s): pictures are decoded without it", finding.name, finding.detail)
    limits = _limits()
    close_files(Access(), limits, allow_unsandboxed=True)
    _import_libraries()
    close = partial(close_calls, limits)
    text_processes = fork_text_processes(lambda its: _run(lambda: answer(its), close))

    def start() -> None:
        close()
        ready()

    _run(lambda: answer(connection, ready.beat, text_processes), start)


def _run(main: Callable[[], Coroutine[Any, Any, None]], start: Callable[[], Any]) -> None:
    """Calls `start` when the event loop has all files that it needs, and then runs `main`."""
    # epoll would need more system calls
    runner = asyncio.Runner(loop_factory=partial(asyncio.SelectorEventLoop, selectors.PollSelector()))
    runner.get_loop()  # creates the sockets that the event loop needs for itself
    start()
    runner.run(main())  # closing the runner would wait for threads that never end; the process ends instead


async def answer(
    connection: socket.socket, beat: Callable[[], None] = lambda: None, text_processes: Sequence[socket.socket] = ()
) -> None:
    """Answers the questions that come over `connection`, until the other end closes it, or work exceeds a time limit.
    Then another process has to continue. Owns the sockets.

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
                return
            wakes.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_EVERY_S if answers.is_busy else BEAT_EVERY_S):
                    await wakes.wait()
    finally:
        answers.close()


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
