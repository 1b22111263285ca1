"""Damage that a compiler child could do inside its sandbox: it uses up all resources, dies, or sends malformed
messages.

Pass this file as `handlers` to `run_child`, like `escapes`.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from service.compiler.sandbox import Report
from service.core.builds.build import Stage
from service.core.errors import MalformedModel, NotReady

Request = Mapping[str, Any]
Result = Mapping[str, Any]

libc = ctypes.CDLL(None, use_errno=True)


def start_threads(request: Request, report: Report) -> Result:
    threading.stack_size(64 << 10)  # small, so that memory is not used up first
    for _ in itertools.count():
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    raise AssertionError


def fork_bomb(request: Request, report: Report) -> Result:
    forked = 0
    for _ in range(1000):
        try:
            os.fork()
        except PermissionError:
            continue
        forked += 1
    return {"forked": forked}


def write_one_file(request: Request, report: Report) -> Result:
    with Path("large").open("wb") as file:
        while True:
            file.write(bytes(1 << 20))


def write_one_file_natively(request: Request, report: Report) -> Result:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the default outside of Python
    return write_one_file(request, report)


def write_many_files(request: Request, report: Report) -> Result:
    for number in range(request["count"]):
        Path(str(number)).write_bytes(bytes(request["size"]))
    return {}


def write_deleted_files(request: Request, report: Report) -> Result:
    kept = []
    for _ in range(100):
        kept.append(os.open(".", os.O_TMPFILE | os.O_RDWR))
        os.write(kept[-1], bytes(request["size"]))
    time.sleep(60)
    return {}


def nest_directories(request: Request, report: Report) -> Result:
    descriptor = os.open(".", os.O_RDONLY)
    for _ in itertools.count():
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    raise AssertionError


def use_memory(request: Request, report: Report) -> Result:
    kept = []
    while True:
        kept.append(bytearray(64 << 20))


def use_memory_natively(request: Request, report: Report) -> Result:
    """Uses up the memory like a C++ program: an uncaught bad_alloc prints its name and aborts."""
    while libc.malloc(ctypes.c_size_t(64 << 20)):
        pass
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def open_files(request: Request, report: Report) -> Result:
    opened: list[int] = []
    try:
        while True:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return {"stopped": errno.errorcode[error.errno or 0], "opened": len(opened)}


def hang(request: Request, report: Report) -> NoReturn:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    report.log(str(os.getpid()))
    while True:
        time.sleep(1000)


def cut_the_parent_death_pipe(request: Request, report: Report) -> NoReturn:
    """Closes all inherited descriptors and continues to run."""
    report.log(str(os.getpid()))
    os.closerange(0, 256)
    while True:
        time.sleep(1000)


def spin_natively(request: Request, report: Report) -> NoReturn:
    """Holds the interpreter's lock forever."""
    report.log(str(os.getpid()))
    forever = re.compile(r"(?:a|aa)+b")
    while True:
        forever.match("a" * 100)


def stop(request: Request, report: Report) -> Result:
    report.log(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    return {}


def spin(request: Request, report: Report) -> NoReturn:
    report.log(str(os.getpid()))
    if request.get("ignore"):
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


def die(request: Request, report: Report) -> Result:
    report.at(stage=Stage.CODEGEN, op="conv2d", tensor="x")
    os.write(2, b"\x1b[31mlast words\n")
    if request["how"] == "segfault":
        ctypes.string_at(0)
    elif request["how"] == "abort":
        os.abort()
    elif request["how"] == "exit":
        os._exit(request["status"])
    else:
        os.kill(os.getpid(), request["signal"])
    return {}


def fail(request: Request, report: Report) -> Result:
    report.at(stage=Stage.IMPORT, op="CONV_2D", tensor="x")
    errors: dict[str, Exception] = {
        "ours": MalformedModel("the offset lies outside the file", hint="send another"),
        "server": NotReady("the server is down"),
        "python": ZeroDivisionError("division by zero"),
        "tvm": RuntimeError("Traceback\n  stack\nCheck failed: a == b (1 vs. 2)"),
        "memory": MemoryError(),
        "bad_alloc": RuntimeError("std::bad_alloc"),
    }
    raise errors[request["what"]]


def unsendable(request: Request, report: Report) -> Result:
    return {"large": "x" * (5 << 20)} if request["large"] else {"not json": {1, 2}}


def say(request: Request, report: Report) -> Result:
    """Writes the bytes `data` (hexadecimal) to the message pipe `times` times. Then does what `then` specifies."""
    pipe = report._descriptor
    data = bytes.fromhex(request["data"]) * request.get("size", 1)
    for _ in range(request.get("times", 1)):
        os.write(pipe, data)
    match request.get("then"):
        case "close and hang":
            os.close(pipe)
            time.sleep(1000)
        case "hang":
            time.sleep(1000)
        case "exit":
            os._exit(0)
        case "crash":
            os.abort()
    return {}


def flood_log(request: Request, report: Report) -> Result:
    while True:
        os.write(2, b"x" * 65536)
