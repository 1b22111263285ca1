"""The zygote: a process that has imported the compiler, never reads an upload, and forks children on request.

`sandbox.zygotes` starts the zygote as `python -m service.compiler.children.zygote SOCKET MODULE…` and sends requests to
the zygote. Each forked child then continues like every other child (`child`).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.compiler.children import child
from service.compiler.dialects import loading
from service.compiler.sandbox.zygotes import READY, ChildDescriptors
from service.core.errors import OctetError
from service.core.system.imports import block_torch

_REQUEST_BYTES = 1 << 16


def serve(channel: socket.socket) -> None:
    """Forks a child for each request until the other end of the channel is closed. Never returns in a child."""
    gc.collect()
    # Otherwise, garbage collection in a child would write to all shared pages, and the kernel would copy them.
    gc.freeze()
    with suppress(ConnectionError):  # the parent process has ended
        channel.send(READY)
        _answer(channel)


def _answer(channel: socket.socket) -> None:
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, len(ChildDescriptors._fields))
        if not request:
            return
        channel.send(str(_fork(json.loads(request), descriptors, channel)).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _fork(request: Mapping[str, Any], descriptors: Sequence[int], channel: socket.socket) -> int:
    """Forks twice and returns the process id of the grandchild. The grandchild waits until the intermediate process has
    ended, because the kernel then gives it a new parent (see `sandbox.zygotes`).
    """
    number, number_end = os.pipe()
    go, go_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        if os.fork() == 0:
            channel.close()
            os.setpgid(0, 0)
            os.write(number_end, str(os.getpid()).encode())
            for end in (number, number_end, go_end):
                os.close(end)
            os.read(go, 1)  # returns when the zygote closes its end of the pipe, after `middle` has ended
            os.close(go)
            try:
                ends = ChildDescriptors(*descriptors)
                child.become(request["role"], ends, Path(request["directory"]), request["env"])
            finally:  # in any case, the child must not run the zygote's code
                os._exit(1)
        os._exit(0)
    os.waitpid(middle, 0)
    pid = int(os.read(number, 32))
    for end in (number, number_end, go, go_end):
        os.close(end)
    return pid


def main(descriptor: int, modules: Sequence[str]) -> None:
    block_torch()
    for module in modules:
        importlib.import_module(module)
    with suppress(OctetError):  # each child tries again, and reports the error
        loading.load_configured()
    serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
