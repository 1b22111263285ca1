"""The data planes of a router and of workers. A test acts as their control planes."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from service.core.cluster.queueing import Scheduling
from service.core.digest import digest_of
from service.core.models.arrays import Array
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.settings import Settings
from service.workers.data_plane import loads, orders, program
from service.workers.data_plane.frames import Frames, frame
from service.workers.data_plane.table import Table
from tests.support import gates, runners
from tests.support.certificates import Files
from tests.support.runners import FunctionRunner
from tests.support.waiting import GIVE_UP_S, eventually

KEY = "the cluster's key, which nobody else knows".replace(" ", "-")
_numbers = itertools.count(1)

Order = tuple[dict[str, Any], bytes]


def _start(control: socket.socket | None, messages: Sequence[Mapping[str, Any] | Order], binary: Path) -> Started:
    with ExitStack() as stack:
        listeners = {
            name: stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512)) for name in ("http", "grpc")
        }
        if control is not None:
            listeners["control"] = control
        for listener in listeners.values():
            listener.setblocking(False)
        first = os.memfd_create("orders")
        stack.callback(os.close, first)
        os.write(first, b"".join(frame(*each) if isinstance(each, tuple) else frame(each) for each in messages))
        os.lseek(first, 0, os.SEEK_SET)
        descriptors = {name: listener.fileno() for name, listener in listeners.items()}
        descriptors |= {"orders": first, "gates": gates.descriptor()}
        arguments = [text for name, each in descriptors.items() for text in (f"--{name}", str(each))]
        arguments += ["--reads", str(runners.folder())] if binary == program.PATH else []
        process = subprocess.Popen([str(binary), *arguments], pass_fds=list(descriptors.values()))
        http, grpc = (listeners[name].getsockname()[1] for name in ("http", "grpc"))
        return Started(process, http, grpc)


@dataclass(frozen=True)
class Started:
    """A data plane process.

    Attributes:
        http, grpc: its ports.
    """

    process: subprocess.Popen[bytes]
    http: int
    grpc: int

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class WorkerProcess:
    """A worker, and the facts about it that the router receives."""

    id: str
    started: Started
    loaded: list[tuple[str, str]]
    pool: str = "p"
    capacity: float = 4
    state: str = "ready"
    server_name: str = ""

    def kill(self) -> None:
        self.started.end()


@dataclass
class Cluster:
    """A router with its workers.

    Attributes:
        router: the router's data plane.
        workers: the workers that `tell` reports to the router.
        places: worker id -> the address to which the router connects, for workers that are not processes of the test.
        asked: the requests that the router has sent to its control plane, in order.
        distrusted: the router's last report of the reason why it does not trust a worker's certificate.
        resolve: called for a name that the router does not know. It returns an error code, or None if the router may
            know the name now.
        is_told_to_end: true if the test has ended the router.
    """

    router: Started
    workers: list[WorkerProcess] = field(default_factory=list)
    models: list[orders.Servable] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    distrusted: dict[str, str] = field(default_factory=dict)
    resolve: Callable[[str, str], str | None] = lambda model, version: "not_found"
    is_told_to_end: bool = False
    _link: socket.socket | None = None
    _saying: Any = field(default_factory=threading.Lock)
    _gathers: int = 0
    _table: Table = field(default_factory=Table)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.router.http}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.router.grpc}"

    def tell(self) -> None:
        """Sends the changes of workers and models to the router. Waits until it has received them."""
        rows = [
            orders.Worker(
                each.id,
                each.pool,
                each.capacity,
                each.state,
                tuple(each.loaded),
                server_name=each.server_name,
            )
            for each in self.workers
        ]
        self._table.set_key(KEY)
        self._table.set_workers(rows)
        self._table.set_models(self.models)
        self.say(self._table.changes())
        self.gather()

    def say(self, message: Mapping[str, Any], passed: socket.socket | None = None, data: bytes = b"") -> None:
        assert self._link is not None
        raw = frame(message, data)
        with self._saying:
            if passed is not None:
                sent = socket.send_fds(self._link, [raw], [passed.fileno()])
                raw = raw[sent:]
            self._link.sendall(raw)

    def gather(self) -> None:
        """Waits until all counts so far are in `reports`, and the router has received all orders."""
        self._gathers += 1
        number = self._gathers
        self.say({"type": "gather", "gather": number})
        eventually(lambda: any(each["gather"] == number for each in list(self.reports)))

    def forwards(self) -> dict[str, dict[str, int]]:
        """Returns the total numbers of forwards, retries and failures of each worker."""
        self.gather()
        found: dict[str, dict[str, int]] = {}
        for each in [each for report in list(self.reports) for each in report["forwards"]]:
            counts = found.setdefault(each["worker"], {"forwarded": 0, "retried": 0, "failed": 0})
            for name in counts:
                counts[name] += each[name]
        return found

    def listen(self, link: socket.socket) -> None:
        """Responds to the router's requests until the router ends."""
        self._link = link
        frames = Frames()
        with suppress(OSError):
            while data := link.recv(1 << 16):
                for message, _ in frames.feed(data):
                    self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "report":
            self.reports.append(message)
        if message["type"] == "distrusted":
            self.distrusted[message["worker"]] = message["reason"]
        if message["type"] == "question":
            self.asked.append(message)
            answer = {"type": "answer", "question": message["question"]}
            if message["kind"] == "connect":
                self._connect(answer, message["worker"])
            elif (code := self.resolve(message["model"], message["version"])) is not None:
                self.say({**answer, "problem": {"code": code, "title": code, "http": 404, "grpc": 5, "detail": "no"}})
            else:
                self.say(answer)

    def _connect(self, answer: dict[str, Any], worker: str) -> None:
        ports = {each.id: each.started.http for each in self.workers} | self.places
        try:
            with socket.create_connection(("127.0.0.1", ports[worker]), GIVE_UP_S) as connection:
                self.say({**answer, "passes": True}, connection)
        except (OSError, KeyError):
            problem = {"code": "restarting", "title": "gone", "http": 503, "grpc": 14, "detail": "it is not there"}
            self.say({**answer, "problem": problem})

    def worker(
        self,
        models: Mapping[str, FunctionRunner],
        certificate: Files | None = None,
        metadata: ModelMetadata = NOTHING,
        **members: Any,
    ) -> WorkerProcess:
        """Starts another worker with `models` loaded, which have this metadata. If `certificate` is given, it uses
        TLS.
        """
        settings = Settings(data_dir=Path("/nonexistent"), auth="on")
        messages: list[Mapping[str, Any] | Order] = [orders.configure(settings), orders.keys(True, (), KEY)]
        if certificate is not None:
            messages.append(orders.certificate(certificate.cert.read_bytes(), certificate.key.read_bytes()))
        named = []
        for key, (name, runner) in enumerate(models.items(), 1):
            part = runner.part(1, digest_of(name.encode()))
            order = loads.load_parts(name, "1", "x86-64-v3", [part], runner.signature, Scheduling(queue_size=64))
            messages += [{**order, "key": key}, {**orders.describe(metadata), "key": key}]
            named += [orders.Named(name, version, key, ["1"]) for version in ("", "1")]
        messages.append(orders.routes(named))
        started = _start(None, messages, program.PATH)
        loaded = [(name, version) for name in models for version in ("", "1")]
        made = WorkerProcess(f"w{next(_numbers)}", started, loaded, **members)
        self.workers.append(made)
        return made


@contextmanager
def cluster(folder: Path, binary: Path = program.PATH, **settings: Any) -> Iterator[Cluster]:
    """Starts a router without workers. `settings` are added to the settings in the order `configure`."""
    path = folder / "control"
    with ExitStack() as stack:
        control = stack.enter_context(socket.socket(socket.AF_UNIX))
        control.bind(str(path))
        control.listen()
        configured = orders.configure(Settings(data_dir=Path("/nonexistent")))
        messages = [{**configured, **settings}, orders.keys(is_required=False), orders.workers(KEY, (), ())]
        made = Cluster(_start(control, messages, binary))
        link = stack.enter_context(socket.socket(socket.AF_UNIX))
        link.connect(str(path))
        made._link = link
        thread = threading.Thread(target=made.listen, args=(link,), daemon=True)
        thread.start()
        try:
            yield made
            assert made.is_told_to_end or made.router.process.poll() is None, (
                "the router ended before the test stopped it"
            )
        finally:
            for each in made.workers:
                each.kill()
            made.router.end()
            thread.join(GIVE_UP_S)


def request(value: Array, name: str = "x", **members: Any) -> bytes:
    """Returns the body of a prediction request as JSON."""
    datatype = {"uint8": "UINT8", "int32": "INT32", "float32": "FP32"}[value.dtype.name]
    entry = {"name": name, "datatype": datatype, "shape": list(value.shape), "data": value.reshape(-1).tolist()}
    return json.dumps({"inputs": [entry], **members}).encode()


def vector(seed: int, length: int = 16) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (1, length), np.uint8)
