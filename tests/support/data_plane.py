"""A real data plane process with in-memory tables, and requests to it in the protocol's binary form."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI
from grpc.aio import Channel, insecure_channel
from uvicorn.server import ServerState

from service.api import problems
from service.api.access import Access
from service.api.data_plane.listener import Listener
from service.api.oip import repository_routes
from service.api.ops import scrape
from service.api.ops.collectors import ModelCollector
from service.api.ops.metrics import Metrics
from service.api.ops.middleware import with_middleware
from service.api.ops.sockets import notice_lost_clients
from service.api.services import Services
from service.core.builds.build import Build
from service.core.cluster.certificate import certificate_of
from service.core.models.arrays import Array
from service.core.models.signature import datatype_of
from service.core.settings import Settings
from service.workers.data_plane import plane, program
from service.workers.inference import Registry, Scheduling
from service.workers.inference.ports import Aliases, Artifacts, Builds, Models
from service.workers.preprocess.process import answer
from tests.support import gates, runners
from tests.support.runners import affine, digits, identity
from tests.support.tables import TARGET, Tables
from tests.support.waiting import GIVE_UP_S

if TYPE_CHECKING:
    from service.api.ops.tracing import Tracing


class DataPlane:
    """A data plane process, and the control plane that it needs, which runs on the event loop of the test.

    Attributes:
        http, grpc: the addresses of the data plane while `lifespan` is active.
        process: the data plane process.
        preprocess: does the work of a preprocessing process over one connection.
        registry: the registry of models, which sends the data plane orders to load them.
        app: the application that handles requests that the data plane forwards.
    """

    def __init__(
        self,
        builds: Builds,
        models: Models | None = None,
        artifacts: Artifacts | None = None,
        aliases: Aliases | None = None,
        scheduling: Mapping[str, Any] | None = None,
        targets: Sequence[str] = (TARGET,),
        on_lost: Callable[[Build], None] = lambda build: None,
        tracing: Tracing | None = None,
        reads: Sequence[Path] = (),
        memory_bytes: int = 0,
        **settings: Any,
    ) -> None:
        """`Tables` implements all four stores. A test may pass the real stores instead.

        Args:
            reads: folders of artifacts that the process may read, in addition to that of `FunctionRunner`.
            memory_bytes: the memory limit of all models together; 0 for no limit.
        """
        self.http = self.grpc = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.metrics = Metrics()
        self.audited: list[tuple[str, Any]] = []
        self.preprocess: Callable[[socket.socket], Coroutine[Any, Any, object]] = answer
        self._address = b"\0octet-test-" + os.urandom(8).hex().encode()
        self._reads = [runners.folder(), *reads]
        self.orders = plane.DataPlane(self._address)
        self.registry = Registry(
            builds,
            models or cast(Tables, builds),
            artifacts or cast(Tables, builds),
            self.orders,
            targets=targets,
            aliases=aliases or (builds if isinstance(builds, Tables) else None),
            scheduling=lambda model: Scheduling(**(scheduling or {"queue_size": 8})),
            on_lost=on_lost,
            refresh_s=0.02,
            memory_bytes=memory_bytes,
        )
        self.metrics.registry.register(ModelCollector(self.registry))
        chosen = Settings(**{"data_dir": Path("/nonexistent"), **settings})
        services = SimpleNamespace(
            registry=self.registry,
            plane=self.orders,
            metrics=self.metrics,
            settings=chosen,
            access=Access(chosen),
            audit=SimpleNamespace(note=lambda action, **what: self.audited.append((action, what))),
            tracing=tracing,
            traced=-1.0 if tracing is None else tracing.ratio,
            certificate=certificate_of(chosen),
            stopping=threading.Event(),
            routing=None,
        )
        self.services = cast(Services, services)
        self.app = FastAPI()
        problems.install(self.app)
        self.app.state.services = self.services
        self.app.router.routes[:] = repository_routes.routes(self.services)
        self.app.include_router(scrape.router)
        self.app.add_middleware(with_middleware, services=self.services)
        self._connections: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Starts the process. At the end, stops it after its last response."""
        with ExitStack() as stack:
            listeners = {"control": stack.enter_context(_unix(self._address))}
            listeners["preprocess"] = stack.enter_context(_unix(self._address + b"-preprocess"))
            listeners["http"] = stack.enter_context(_loopback())
            if self.services.settings.grpc:
                listeners["grpc"] = stack.enter_context(_loopback())
                self.grpc = "{}:{}".format(*listeners["grpc"].getsockname())
            self.http = "{}:{}".format(*listeners["http"].getsockname())
            self._listeners = listeners
            self.start()
            tasks = self._control()
            try:
                await self._knows(tasks)
                yield
                await self.orders.gather()  # the counts of a request arrive after its response
            finally:
                await self.stop()
                await self.registry.close()
                for task in [*tasks, *self._connections]:
                    task.cancel()
                await asyncio.gather(*tasks, *self._connections, return_exceptions=True)

    def start(self) -> None:
        """Starts the process, or starts another one on the same ports."""
        descriptors = {name: listener.fileno() for name, listener in self._listeners.items()}
        # The models of the process need this descriptor, and only descriptors that are passed stay open.
        descriptors["gates"] = gates.descriptor()
        arguments = [str(program.PATH)]
        for name, descriptor in descriptors.items():
            arguments += f"--{name}", str(descriptor)
        for path in self._reads:
            arguments += "--reads", str(path.resolve())
        self.process = subprocess.Popen(arguments, pass_fds=list(descriptors.values()))

    async def stop(self) -> None:
        """Ends the process after it has responded to the requests that are running."""
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            status = await asyncio.to_thread(process.wait, GIVE_UP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
            raise
        assert status == 0, f"octet-plane ended with {status}"

    async def scraped(self) -> str:
        """Returns the metrics. They include all responses so far."""
        await self.orders.gather()
        return (await asyncio.to_thread(self.metrics.text)).decode()

    async def _knows(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Waits until the process has received its first orders."""

        async def reach() -> None:
            await self.orders.reached()
            await self.orders.gather()

        reaching = asyncio.ensure_future(reach())
        done, _ = await asyncio.wait([reaching, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for each in done:  # the other tasks end only if they fail
            await each

    def _control(self) -> list[asyncio.Task[Any]]:
        config = uvicorn.Config(
            self.app,
            lifespan="off",
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=True,
            forwarded_allow_ips="*",
        )
        config.load()
        protocol: Callable[..., asyncio.Protocol] = config.http_protocol_class
        make = partial(protocol, config=config, server_state=ServerState(), app_state={})
        loop = asyncio.get_running_loop()

        async def serve(connection: socket.socket) -> None:
            with suppress(OSError):  # the socket was closed in the meantime
                await loop.connect_accepted_socket(make, connection)

        def take(descriptor: int) -> None:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            task = loop.create_task(serve(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        listener = Listener(self.services, take)
        self.orders.listener = listener
        work = listener.keep_telling(), self.orders.run(), self._preprocess()
        return [loop.create_task(each) for each in work]

    async def _preprocess(self) -> None:
        """Does the work of the preprocessing process, for each data plane process in turn."""
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, self._address + b"-preprocess")
            await self.preprocess(connection)


@asynccontextmanager
async def channel(plane: DataPlane, **options: Any) -> AsyncIterator[Channel]:
    """Starts a data plane, and yields a gRPC channel to it."""
    async with plane.lifespan(), insecure_channel(plane.grpc, **options) as opened:
        yield opened


@asynccontextmanager
async def client_of(plane: DataPlane) -> AsyncIterator[httpx.AsyncClient]:
    """Starts a data plane, and yields an HTTP client of it."""
    async with plane.lifespan(), httpx.AsyncClient(base_url=f"http://{plane.http}", timeout=GIVE_UP_S) as client:
        yield client


@asynccontextmanager
async def connect(tables: Tables, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Starts a data plane with `tables`, and yields an HTTP client. Its attribute `plane` is the data plane."""
    plane = DataPlane(tables, **options)
    async with client_of(plane) as client:
        client.plane = plane  # type: ignore[attr-defined]
        yield client


@contextmanager
def serving(plane: DataPlane) -> Iterator[str]:
    """Runs a data plane with an event loop in a separate thread. Yields `host:port`, its address for HTTP."""
    started, stopping = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def serve() -> None:
        async with plane.lifespan():
            started.set()
            await asyncio.to_thread(stopping.wait)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="control plane")
    thread.start()
    try:
        assert started.wait(GIVE_UP_S), "the data plane did not start"
        if not failures:
            yield plane.http
    finally:
        stopping.set()
        thread.join()
    if failures:
        raise failures[0]


def _unix(address: bytes) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen()
    listener.setblocking(False)
    return listener


def _loopback() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    notice_lost_clients(listener)
    listener.setblocking(False)
    return listener


def entry(name: str, array: Array, **members: Any) -> dict[str, Any]:
    """Returns an entry of `inputs` without its data."""
    return {"name": name, "datatype": datatype_of(array.dtype.name), "shape": list(array.shape), **members}


def as_json(array: Array, name: str = "x", **members: Any) -> dict[str, Any]:
    """Returns a request with one input as JSON. `members` replace members of the input."""
    return {"inputs": [{**entry(name, array), "data": array.reshape(-1).tolist(), **members}]}


def as_binary(
    inputs: Mapping[str, Array], request: Mapping[str, Any] | None = None, outputs: Sequence[Any] | None = None
) -> tuple[bytes, dict[str, str]]:
    """Returns the body and the headers of a request with binary inputs."""
    document: dict[str, Any] = {
        "inputs": [entry(name, array, parameters={"binary_data_size": array.nbytes}) for name, array in inputs.items()],
        **(request or {}),
    }
    if outputs is not None:
        document["outputs"] = outputs
    return packed(document, *(array.tobytes() for array in inputs.values()))


def packed(document: Any, *blobs: bytes) -> tuple[bytes, dict[str, str]]:
    """Returns a body of JSON followed by raw tensors, and the header with the length of the JSON."""
    text = json.dumps(document).encode()
    return text + b"".join(blobs), {"Inference-Header-Content-Length": str(len(text))}


def sample_tables() -> Tables:
    """Returns tables for tests of protocol clients: models with several inputs, outputs, versions and datatypes."""
    tables = Tables()
    tables.model("digits", digits)
    tables.built("digits", tables.push("digits"), lambda: digits(bias=1))
    tables.model("affine", affine)
    tables.model("large", lambda: identity("UINT8", 1, 224, 224, 3))
    for datatype in ("BOOL", "UINT16", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"):
        tables.model(datatype.lower(), partial(identity, datatype, 1, 4))
    tables.push("unbuilt")
    return tables


def extremes(dtype: np.dtype[Any]) -> Array:
    """Returns four elements, `[1, 4]`, including both ends of the range."""
    if dtype == np.bool_:
        return np.array([[False, True, True, False]])
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return np.array([[limits.min, limits.max, 0, 1]], dtype)


def unpacked(response: httpx.Response) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns the JSON and the binary outputs of a response."""
    length = int(response.headers["inference-header-content-length"])
    document = json.loads(response.content[:length])
    arrays, offset = {}, length
    for output in document["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            dtype = {"UINT8": "u1", "INT8": "i1", "INT32": "<i4", "INT64": "<i8", "FP32": "<f4", "BOOL": "?"}
            data = response.content[offset : offset + size]
            arrays[output["name"]] = np.frombuffer(data, dtype[output["datatype"]]).reshape(output["shape"])
            offset += size
    assert offset == len(response.content)
    return document, arrays
