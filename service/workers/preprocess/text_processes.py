"""The processes that tokenize texts. The preprocessing process forks them before it gives up its rights.

The package `tokenizers` holds the interpreter lock while it loads a tokenizer, which can take
seconds. In a process of its own, this delays neither pictures nor the texts that another process tokenizes. If such a
process dies, or loads a tokenizer for too long, the preprocessing process has to end too, because it cannot start
another one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from service.compiler.sandbox.kernel import prctl
from service.core.digest import parse_digest
from service.core.errors import NotReady, Restarting, TooLarge
from service.workers.data_plane.link import Link
from service.workers.preprocess.pictures import Endless
from service.workers.preprocess.tokenizer_files import read_tokenizer

_logger = logging.getLogger(__name__)

Members = dict[str, Any]
Answer = tuple[Members, bytes]

PROCESSES = 2
_LOAD_S, _LOAD_S_OF_MB = 5.0, 1.5  # the limit for loading a tokenizer; the largest in use (17 MB) take some seconds
_PR_SET_PDEATHSIG = 1


def fork_text_processes(work: Callable[[socket.socket], object]) -> list[socket.socket]:
    """Forks the processes, which call `work` with their ends of sockets. Returns the other ends, which do not block.

    Must be called in a process with one thread.
    """
    connections: list[socket.socket] = []
    parent = os.getpid()
    for _ in range(PROCESSES):
        local, remote = socket.socketpair()
        if os.fork() == 0:
            _work(work, local, [remote, *connections], parent)
        local.close()
        remote.setblocking(False)
        connections.append(remote)
    return connections


def _work(
    work: Callable[[socket.socket], object], connection: socket.socket, others: Sequence[socket.socket], parent: int
) -> None:
    status = 1
    try:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for each in others:
            each.close()
        _keep_log_to_python()
        if os.getppid() == parent:  # otherwise the parent had ended before the first line
            connection.setblocking(False)
            work(connection)
        status = 0
    except BaseException:
        _logger.exception("a text process failed with an unexpected error")
    finally:
        logging.shutdown()
        os._exit(status)


def _keep_log_to_python() -> None:
    """Lets only Python's logging write to the standard error of this process. The package `tokenizers` prints several
    lines and parts of the text whenever it panics, so a client could fill the log.
    """
    log = os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1, errors="backslashreplace")
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
            handler.setStream(log)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stderr.fileno())
    os.close(null)
    sys.stderr = log


class _TextProcess:
    def __init__(self, connection: socket.socket, lost: Callable[[list[int]], None]) -> None:
        """
        Args:
            lost: called with the questions that may have ended the process, when it ends.
        """
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._begun: set[int] = set()  # the questions on which a thread of the process works
        self.ends_s: dict[int, float] = {}  # by question: when the loading of its tokenizer has to end
        self._lost = lost
        self._link = Link(connection, self._handle, self._lose)

    def _lose(self) -> None:
        _logger.error("a process that tokenizes texts died; it may have run out of memory")
        # a question that waited for its turn is not the reason; if no question had begun, any may be
        self._lost([each for each in self._waiting if each in self._begun] or list(self._waiting))

    def close(self) -> None:
        self._link.close()
        for question in self._waiting:
            self.fail(question, Restarting("a process that tokenizes texts has ended"))

    def fail(self, question: int, error: Exception) -> None:
        waiting = self._waiting.get(question)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    async def ask(self, question: Members, data: bytes, load_s: float = 0.0) -> Answer:
        """Returns the answer. If the caller is canceled, returns when the process does not work on it any more.

        Args:
            load_s: how long the loading of the tokenizer may take; 0 if it is loaded.
        """
        loop = asyncio.get_running_loop()
        number = question["question"]
        waiting = self._waiting[number] = loop.create_future()
        if load_s:
            self.ends_s[number] = loop.time() + load_s
        self._link.send({**question, "passes": False}, data)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            self._link.send({"type": "withdraw", "question": number})
            while not waiting.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([waiting])
            # a client that has left may not use the tokenizer for a while, if its text was endless
            if waiting.exception() is None:
                answer: Answer = waiting.result()
                if answer[0].get("problem", {}).get("is_endless"):
                    return answer
            raise
        finally:
            del self._waiting[number]
            self._begun.discard(number)
            self.ends_s.pop(number, None)

    def _handle(self, message: Members, data: bytes, descriptor: int) -> None:
        match message["type"]:
            case "began" if message["question"] in self._waiting:
                self._begun.add(message["question"])
            case "rested":
                self._begun.discard(message["question"])
            case "loaded":
                self.ends_s.pop(message["question"], None)
            case "answer":
                waiting = self._waiting.get(message["question"])
                if waiting is not None and not waiting.done():
                    members = {name: each for name, each in message.items() if name not in ("type", "question")}
                    waiting.set_result((members, data))
            case "leaving":  # the process has answered the question that took too long, and ends
                self._lost([])


class TextProcesses:
    """Passes questions about texts to the processes. For one event loop."""

    def __init__(self, connections: Sequence[socket.socket], lost: Callable[[list[int]], None]) -> None:
        """
        Args:
            connections: the sockets of the processes, which this object owns from now on.
            lost: called with the questions that may have ended a process, when one of them ends.
        """
        self._processes = [_TextProcess(each, lost) for each in connections]

    def close(self) -> None:
        for each in self._processes:
            each.close()

    def fail_overdue(self) -> bool:
        """Lets `tokenize` raise `Endless` for questions whose tokenizer takes too long to load. Returns true if there
        are such questions.
        """
        now_s = asyncio.get_running_loop().time()
        late = [
            (each, question) for each in self._processes for question, ends_s in each.ends_s.items() if ends_s < now_s
        ]
        for process, question in late:
            error = TooLarge("the model's tokenizer takes too long to load", hint="use a smaller one")
            process.fail(question, Endless(error))
        return bool(late)

    async def tokenize(self, question: Members, texts: bytes, descriptor: int) -> Answer:
        """Returns the answer to a question about texts.

        Args:
            descriptor: the open file of the tokenizer.

        Raises:
            NotReady: the file is missing.
            Endless: the tokenizer takes too long to load, and `fail_overdue` was called.
        """
        process = self._process_for(question)
        answer = await process.ask(question, texts)
        if "missing" not in answer[0]:
            return answer
        if descriptor < 0:
            raise NotReady("the file of the model's tokenizer cannot be read", hint="upload it again")
        tokenizer = read_tokenizer(descriptor)
        load_s = _LOAD_S + _LOAD_S_OF_MB * len(tokenizer) / (1 << 20)
        return await process.ask({**question, "tokenizer_bytes": len(tokenizer)}, tokenizer + texts, load_s)

    def _process_for(self, question: Members) -> _TextProcess:
        """Returns always the same process for a tokenizer, unless that process loads one."""
        _, _, digits = parse_digest(question["text"]["tokenizer"]).partition(":")
        first = int(digits, 16) % len(self._processes)
        order = self._processes[first:] + self._processes[:first]
        return next((each for each in order if not each.ends_s), order[0])
