"""The data plane as seen from the control plane: sends orders to each new data plane process, and answers its
questions.

docs/adr/0042 describes the protocol. The data plane may end and start again. The new process has none of the earlier
orders. The control plane may restart too. The new control plane then finds the models that the earlier one had loaded.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from service.core.digest import canonical_json
from service.core.errors import NotReady, NotStarted, OctetError, Restarting, from_json
from service.workers.data_plane import orders
from service.workers.data_plane.frames import PROTOCOL
from service.workers.data_plane.link import Link
from service.workers.data_plane.messages import Question, Report, Sample, Trace
from service.workers.data_plane.table import Table

_logger = logging.getLogger(__name__)
_PATIENCE_S = 10.0  # how long to wait for a data plane that is starting
_PAUSE_S = 0.1
# if the data plane cannot be reached for this long, a warning is logged; until then it may be starting
_WARN_AFTER_S = 2.0
_KEY_BYTES = 6  # a key of this many bytes fits into a JSON number exactly

Members = dict[str, Any]
Order = tuple[Members, bytes]


@dataclass(frozen=True)
class Found:
    """The state of a data plane when a connection to it is made.

    Attributes:
        models: the keys of the loaded models.
        routes: the routes that an earlier control plane set.
        pid: the id of the data plane's process, which the data plane reports.
    """

    models: Collection[int]
    routes: Sequence[orders.Named]
    pid: int = 0


@dataclass(frozen=True)
class Answer:
    """The answer to a question of the data plane.

    Attributes:
        passed: a socket to send with the answer. The socket is closed once it is sent.
    """

    members: Members
    data: bytes = b""
    passed: socket.socket | None = None


class Routing(Protocol):
    """Opens connections to workers."""

    async def connect(self, worker: str) -> socket.socket:
        """Opens a TCP connection to the worker with this id, for example with `link.connected_to`. The caller owns the
        connection.

        Raises:
            OctetError: the worker cannot be reached within two seconds.
        """
        ...


class PlaneListener:
    """Handles the reports and questions of the data plane. The methods of this base class ignore reports and refuse
    questions.
    """

    async def found(self, found: Found) -> None:
        """A connection to a data plane was made: to the first data plane, or to a data plane that replaces an earlier
        one.
        """

    def lost(self) -> None:
        """The connection to the data plane has ended."""

    def reported(self, report: Report) -> None:
        """The data plane reported its counts since the last report."""

    def traced(self, trace: Trace) -> None:
        """A traced request was answered."""

    def sampled(self, sample: Sample, data: bytes) -> None:
        """A request that was chosen as a sample was answered. `data` contains the elements of its inputs."""

    def distrusted(self, worker: str, reason: str) -> None:
        """The certificate of a worker was rejected."""

    def connected(self, descriptor: int) -> None:
        """The data plane hands over a connection with requests that it does not answer itself. The callee closes the
        descriptor.
        """
        socket.socket(fileno=descriptor).close()

    async def answer(self, question: Question, data: bytes) -> Answer:
        raise NotImplementedError


class DataPlane:
    """Keeps a connection to the data plane, and sends it orders. For one event loop.

    Attributes:
        listener: gets the reports and questions of the data plane.
    """

    def __init__(self, address: bytes, name: str = "data plane") -> None:
        """
        Args:
            address: the address of the Unix socket on which the data plane accepts the control plane's connection.
            name: the name of the data plane in log messages.
        """
        self._address, self._name = address, name
        self.listener: PlaneListener = PlaneListener()
        self._link: Link | None = None
        self._reached, self._gone = asyncio.Event(), asyncio.Event()
        self._answered = asyncio.Event()  # set when the data plane has said which protocol it uses
        self._refusal: NotStarted | None = None
        self._standing_orders: dict[str, Order] = {}  # orders that each new data plane receives, by their type
        self._table: Table | None = None
        self._loading: dict[int, asyncio.Future[None]] = {}
        self._leaving: dict[int, asyncio.Future[None]] = {}
        self._present: set[int] = set()  # the keys of loaded models
        self._requested: set[int] = set()  # the keys of the loaded models that this process requested
        self._gathering: dict[int, asyncio.Future[None]] = {}
        self._gathers = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Connects to the data plane, and reconnects whenever the connection is lost, until canceled."""
        try:
            while True:
                self._gone.clear()
                self._link = Link(await self._connection(), self._handle_message, self._lose)
                await self._gone.wait()
        finally:
            self._lose()

    async def reached(self) -> None:
        """Waits until a data plane is connected and has received the standing orders.

        Raises:
            NotStarted: the data plane is from another release.
        """
        await self._answered.wait()
        if self._refusal is not None:
            raise self._refusal

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    @property
    def present(self) -> Collection[int]:
        """Returns the keys of the loaded models."""
        return frozenset(self._present)

    def order(self, members: Members, data: bytes = b"") -> None:
        """Sends an order to the current data plane and to each later one. The order replaces an earlier order of the
        same type.
        """
        if self._standing_orders.get(members["type"]) == (members, data):
            return
        self._standing_orders[members["type"]] = members, data
        if self._reached.is_set():
            self._send(members, data)

    def follow(self, table: Table) -> None:
        """Sends the changes of the table since they were last sent. Each new data plane receives the whole table."""
        self._table = table
        if self._reached.is_set() and table.has_changed:
            self._send(table.changes())

    async def load(self, order: Mapping[str, Any]) -> int:
        """Loads a model and returns its key. The key is derived from the order, so a model that an earlier control
        plane loaded has the same key.

        Raises:
            OctetError: the model cannot be loaded; or no data plane runs, and none starts in time.
        """
        await self._patiently()
        key = self._key_of(order)
        done = self._loading.get(key)
        if done is None:
            done = self._loading[key] = asyncio.get_running_loop().create_future()
            self._send({**order, "key": key})
        await asyncio.shield(done)
        return key

    def describe(self, key: int, members: Members) -> None:
        """Sets the metadata of a loaded model. The file of its tokenizer is sent as an open descriptor, because the
        data plane of a tenant cannot open it.
        """
        if key not in self._present or self._link is None:
            return
        try:
            file = Path(members["tokenizer"]).open("rb") if "tokenizer" in members else None  # noqa: SIM115
        except OSError as error:
            _logger.error("cannot open the tokenizer of a model, which therefore takes no texts: %s", error)
            file = None
        carries = {"passes": True} if file is not None else {}
        self._link.send({**members, "type": "describe", "key": key, **carries}, b"", file)

    async def unload(self, key: int) -> None:
        """Unloads a model, and waits until its last request is over."""
        if key not in self._present:
            return
        self._present.discard(key)
        self._requested.discard(key)
        done = self._leaving[key] = asyncio.get_running_loop().create_future()
        self._send(orders.unload(key))
        await done

    def leftovers(self) -> Collection[int]:
        """Returns the keys of loaded models that only an earlier control plane requested."""
        return self._present - self._requested - self._loading.keys()

    async def gather(self) -> None:
        """Makes the data plane report all its counts up to now, and waits for the report. Does nothing if no data plane
        is connected.
        """
        if not self._reached.is_set():
            return
        self._gathers += 1
        done = self._gathering[self._gathers] = asyncio.get_running_loop().create_future()
        self._send({"type": "gather", "gather": self._gathers})
        with suppress(OctetError):
            await done

    def _key_of(self, order: Mapping[str, Any]) -> int:
        salt = 0
        while True:
            digest = hashlib.sha256(canonical_json({**order, "salt": salt})).digest()
            key = int.from_bytes(digest[:_KEY_BYTES]) + 1
            if key not in self._leaving and key not in self._requested:
                return key
            salt += 1

    async def _patiently(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._reached.wait()
        except TimeoutError:
            raise Restarting(f"the {self._name} is not running", hint="try again later") from None

    async def _connection(self) -> socket.socket:
        loop, is_logged = asyncio.get_running_loop(), False
        began_s = loop.time()
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, self._address)
                return connection
            except OSError as error:
                connection.close()
                if not is_logged and loop.time() - began_s > _WARN_AFTER_S:
                    _logger.warning("the %s cannot be reached: %s", self._name, error)
                    is_logged = True
                await asyncio.sleep(_PAUSE_S)
            except BaseException:
                connection.close()
                raise

    def _send(self, members: Members, data: bytes = b"") -> None:
        if self._link is not None:
            self._link.send(members, data)

    def _handle_message(self, message: Members, data: bytes, descriptor: int) -> None:
        match message["type"]:
            case "hello":
                self._handle_hello(message)
            case "loaded":
                self._present.add(message["key"])
                self._requested.add(message["key"])
                _settle(self._loading.pop(message["key"], None))
            case "failed":
                _settle(self._loading.pop(message["key"], None), _failure(message))
            case "unloaded":
                _settle(self._leaving.pop(message["key"], None))
            case "report":
                self.listener.reported(cast(Report, message))
                _settle(self._gathering.pop(message["gather"], None))
            case "question":
                self._do(self._answer(cast(Question, message), data))
            case "distrusted":
                self.listener.distrusted(message["worker"], message["reason"])
            case "connection":
                self.listener.connected(descriptor)
            case "sample":
                self.listener.sampled(cast(Sample, message), data)
            case "trace":
                self.listener.traced(cast(Trace, message))

    def _handle_hello(self, hello: Members) -> None:
        if hello["protocol"] != PROTOCOL:
            self._refusal = NotStarted(
                f"the {self._name} is from another release: it uses version {hello['protocol']} of the protocol, not "
                f"{PROTOCOL}",
                hint="install one release completely; in a checkout, build the native code again with make setup",
            )
            self._answered.set()
            return
        self._refusal = None
        self._present = set(hello["models"])
        self._requested &= self._present
        routes = [orders.Named(**each) for each in hello["routes"]]
        # the table comes before the other orders: without it, requests would not be forwarded
        if self._table is not None:
            self._send(self._table.whole())
        for order in self._standing_orders.values():
            self._send(*order)
        self._reached.set()
        self._answered.set()
        self._do(self.listener.found(Found(frozenset(self._present), routes, hello.get("pid", 0))))

    def _lose(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None
        self._standing_orders.pop("routes", None)
        was_reached = self.is_reached
        self._reached.clear()
        self._answered.clear()
        self._present.clear()
        lost = Restarting(f"the {self._name} ended before it answered", hint="try again later")
        for waiting, error in ((self._loading, lost), (self._gathering, lost), (self._leaving, None)):
            for done in waiting.values():
                _settle(done, error)
            waiting.clear()
        self._gone.set()
        if was_reached:
            self.listener.lost()

    async def _answer(self, question: Question, data: bytes) -> None:
        link = self._link
        answer = await self.listener.answer(question, data)
        carries = {"passes": True} if answer.passed is not None else {}
        members = {"type": "answer", "question": question["question"], **carries, **answer.members}
        if link is not None:  # a closed link drops the frame
            link.send(members, answer.data, answer.passed)
        elif answer.passed is not None:
            answer.passed.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception:
                _logger.exception("cannot handle a message of the data plane")

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # closes the work also if the task was canceled before it began


def _settle(done: asyncio.Future[None] | None, error: Exception | None = None) -> None:
    if done is None or done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        # Marks the exception as retrieved. If the waiting task was canceled, asyncio would log the exception.
        done.exception()


def _failure(message: Members) -> OctetError:
    members = {"code": message["code"], "message": message["detail"], "hint": message["hint"] or None}
    error = from_json(members)
    return error if isinstance(error, NotReady) else NotReady(error.message, hint=error.hint)
