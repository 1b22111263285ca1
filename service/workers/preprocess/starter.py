"""The helper process of a data plane that runs alone: it starts the preprocessing process when the data plane requests
it, and starts another one when it ends, as the supervisor of `octet serve` does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence

from service.workers.supervised import Ready, SupervisedProcess

_PIPE_BYTES = 64 << 10


def fork_starter(address: bytes, others: Sequence[socket.socket], watchdog_s: float) -> int:
    """Forks the helper. Returns a pipe, to which the data plane writes its requests. The helper and the preprocessing
    process end when the data plane closes the pipe.

    Args:
        address: the address of the Unix socket on which the data plane accepts the preprocessing process.
        others: the sockets of the data plane, which the helper closes.
        watchdog_s: a preprocessing process that is silent for this long is replaced.
    """
    reader, writer = os.pipe()
    if os.fork():
        os.close(reader)
        return writer
    status = 1
    try:
        os.close(writer)
        for each in others:
            each.close()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # this process is needed until the last request is answered
        asyncio.run(_start_on_demand(reader, address, watchdog_s))
        status = 0
    finally:
        os._exit(status)


async def _start_on_demand(reader: int, address: bytes, watchdog_s: float) -> None:
    def be_preprocessor(ready: Ready) -> None:
        from service.workers.preprocess.process import run

        run(address, ready)

    preprocessor = SupervisedProcess("preprocessor", be_preprocessor, on_demand=True, silence_s=watchdog_s)
    has_ended = asyncio.Event()

    def receive() -> None:
        data = os.read(reader, _PIPE_BYTES)
        if not data:
            has_ended.set()
        elif b"wanted" in data:
            preprocessor.want()

    asyncio.get_running_loop().add_reader(reader, receive)
    running = asyncio.ensure_future(preprocessor.run())
    await has_ended.wait()
    preprocessor.kill()
    running.cancel()
