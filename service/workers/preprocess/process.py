"""The preprocessing process. The supervisor forks it when a data plane requests it.

It connects to one data plane, gives up its rights, and then answers questions until the data plane ends. If it dies or
is killed because it hangs, the data plane repeats its questions to the next process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import socket
from collections.abc import Callable
from functools import partial

from service.compiler.sandbox.check import check
from service.compiler.sandbox.lockdown import close_calls, close_files
from service.compiler.sandbox.policy import UNLIMITED_BYTES, Access, Limits
from service.core.errors import NotStarted
from service.workers.preprocess.answers import Answers
from service.workers.supervised import BEAT_EVERY_S, Ready

_logger = logging.getLogger(__name__)
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
    # epoll would need more system calls
    with asyncio.Runner(loop_factory=partial(asyncio.SelectorEventLoop, selectors.PollSelector())) as runner:
        runner.get_loop()  # creates the sockets that the event loop needs for itself
        close_calls(limits)
        ready()
        runner.run(answer(connection, ready.beat))


async def answer(connection: socket.socket, beat: Callable[[], None] = lambda: None) -> None:
    """Answers the questions that come over `connection`, until the other end closes it. Owns the connection.

    Args:
        beat: called twice a second.

    Raises:
        RuntimeError: a thread has worked on a picture or a text for too long.
    """
    is_lost = asyncio.Event()
    answers = Answers(connection, is_lost.set)
    try:
        while not is_lost.is_set():
            beat()
            if what := answers.overdue:  # a thread cannot be stopped
                raise RuntimeError(what)
            try:
                async with asyncio.timeout(BEAT_EVERY_S):
                    await is_lost.wait()
            except TimeoutError:
                pass
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
    import tokenizers  # noqa: F401

    import service.runtime.image
    import service.workers.preprocess.texts  # noqa: F401
