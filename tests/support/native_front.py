"""A front with a model behind it, and a client for both."""

from __future__ import annotations

import select
import socket
import threading
from typing import Any

import numpy as np

from service.native import ModelQueue, as_runner
from service.native.front import Entry, Front, Handover, Limits, Problem
from tests.support.waiting import GIVE_UP_S, eventually

PATH = "/v2/models/m/versions/3/infer"
HEADER, DOCUMENT = b'{"inputs":[{"name":"x"}]}', b'{"outputs":[{"name":"y"}]}'
LARGE_HEADER, LARGE = b'{"inputs":[{"name":"large"}]}', 300_000
LONGEST_BYTES = 400_000
REFUSALS = {"queue_full": 429, "late": 504}
LIMITS = Limits(
    head_timeout_s=60,
    keep_alive_s=75,
    stall_timeout_s=60,
    min_body_bytes=1,
    lend_after_s=0.1,
    max_head_bytes=65_536,
    longest_body_bytes=LONGEST_BYTES,
)


class Model:
    """Adds one to `[1, n]` uint8; stands still while `gate` is closed, and fails for a first element of 7."""

    def __init__(self, queue_size: int = 64) -> None:
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.gate.set()
        self.queue = ModelQueue.start(
            "m", [{1: as_runner(self._run)}], queue_size=queue_size, levels=3, max_batch=0, max_delay_s=0.0
        )
        self.entry = Entry.of(self.queue, 7)
        for kind, status in REFUSALS.items():
            head = f"HTTP/1.1 {status} No\r\ndate: \4\r\nretry-after: \2\r\ncontent-length: \3\r\n\r\n"
            self.entry.refuse_with(kind, status, head.encode() + kind.encode() + b" \1")
        self.learn(HEADER, (1, 100), np.uint8)
        self.learn(LARGE_HEADER, (1, LARGE), np.uint8)

    def learn(self, header: bytes, shape: tuple[int, ...], dtype: Any, timeout_s: float | None = None) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.entry.learn(
            header,
            shapes=[shape],
            dtypes=[dtype],
            order=[0],
            samples=1,
            level=2,
            timeout_s=timeout_s,
            document=DOCUMENT,
            outputs=[0],
            output_bytes=size,
        )

    def _run(self, arrays: Any) -> list[Any]:
        self.entered.release()
        assert self.gate.wait(GIVE_UP_S)
        assert arrays[0].ctypes.data % 64 == 0
        if arrays[0].dtype == np.uint8 and arrays[0].flat[0] == 7:
            raise ValueError("seven")
        return [arrays[0] + 1] if arrays[0].dtype == np.uint8 else [arrays[0]]

    def close(self) -> None:
        self.gate.set()
        self.queue.close()
        self.queue.join()


class Serving:
    """A front with a model, on a port."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self.model = model
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.front = Front.on(self.listener.fileno(), limits)
        self.front.route({PATH: model.entry})
        self._clients: list[socket.socket] = []

    def client(self) -> socket.socket:
        client = socket.create_connection(self.listener.getsockname(), timeout=GIVE_UP_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.append(client)
        return client

    def event(self) -> Handover | Problem:
        (event,) = self.events()
        return event

    def events(self) -> list[Handover | Problem]:
        assert select.select([self.front.descriptor()], [], [], GIVE_UP_S)[0]
        return self.front.happened()

    def close(self) -> None:
        self.model.gate.set()
        self.front.stop()
        self.front.stop()
        self.front.join()
        for event in self.front.happened():
            if isinstance(event, Handover):
                socket.socket(fileno=event.descriptor).close()
        self.listener.close()
        for client in self._clients:
            client.close()
        self.model.close()


def post(tensors: bytes, *headers: str, header: bytes = HEADER, path: str = PATH) -> bytes:
    length = len(header) + len(tensors)
    lines = f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {length}"
    all_lines = [*lines, f"Inference-Header-Content-Length: {len(header)}", *headers, "", ""]
    return "\r\n".join(all_lines).encode() + header + tensors


def read(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """An answer, and nothing of the next."""
    with client.makefile("rb", buffering=0) as stream:
        status = stream.readline().decode()
        lines = list(iter(stream.readline, b"\r\n"))
        headers = {name: value.strip() for name, _, value in (line.decode().partition(":") for line in lines)}
        body = b""
        while len(body) < int(headers["content-length"]):
            body += stream.read(int(headers["content-length"]) - len(body)) or b""
        return int(status.split()[1]), headers, body


def plus_one(tensors: bytes) -> bytes:
    return DOCUMENT + (np.frombuffer(tensors, np.uint8) + 1).tobytes()


def seen_by_python(handover: Handover, rest: bytes = b"") -> bytes:
    with socket.socket(fileno=handover.descriptor) as connection:
        connection.settimeout(GIVE_UP_S)
        received = handover.received
        while len(received) < len(rest):
            received += connection.recv(1 << 20)
        return received


def full(limits: Limits = LIMITS) -> tuple[Serving, socket.socket]:
    """Serving with one request in the model and one in the queue, which is full, and the client of the second."""
    serving = Serving(Model(queue_size=1), limits)
    serving.model.gate.clear()
    serving.client().sendall(post(bytes(100)))
    assert serving.model.entered.acquire(timeout=GIVE_UP_S)
    client = serving.client()
    client.sendall(post(bytes(100)))
    eventually(lambda: serving.model.queue.queued() == 1)
    return serving, client
