"""The data plane as the control plane sees it: orders that are said again to each that comes, and what it asks.

docs/adr/0042 has the protocol. The data plane may go and come back, with nothing of what it was told; and so may the
control plane, which then finds there what another has left.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from service.core.digest import canonical_json
from service.core.errors import NotReady, OctetError, Restarting, from_json
from service.workers.data_plane import orders
from service.workers.data_plane.frames import PROTOCOL
from service.workers.data_plane.link import Link
from service.workers.data_plane.table import Table

_logger = logging.getLogger(__name__)
_PATIENCE_S = 10.0  # for a data plane that is on its way
_PAUSE_S = 0.1
_TELL_AFTER_S = 2.0  # that it cannot be reached: until then it is on its way
_KEY_BYTES = 6  # a whole number in any JSON
_WITHDRAWN = {"problem": {"code": "deadline_passed", "title": "Withdrawn.", "http": 504, "grpc": 4}}

Members = dict[str, Any]
Said = tuple[Members, bytes]


@dataclass(frozen=True)
class Found:
    """What is there when a data plane is reached.

    Attributes:
        models: the keys of what is loaded.
        routes: who answers, by what an earlier control plane said.
        pid: of its process, as it says.
    """

    models: Collection[int]
    routes: Sequence[orders.Named]
    pid: int = 0


@dataclass(frozen=True)
class Answer:
    """To a question.

    Attributes:
        passed: a descriptor that goes with it, and is closed once it was sent.
    """

    members: Members
    data: bytes = b""
    passed: socket.socket | None = None


class Routing(Protocol):
    """Where workers are."""

    async def connect(self, worker: str) -> socket.socket:
        """A TCP connection to a worker, by its id, for the caller; `link.connected_to` opens one.

        Raises:
            OctetError: it cannot be reached, within two seconds.
        """
        ...


class Unheard:
    """What the data plane tells, and asks. These methods do nothing, and refuse."""

    async def found(self, found: Found) -> None:
        """A data plane was reached: the first, or another."""

    def lost(self) -> None:
        """It is there no more."""

    def reported(self, report: Members) -> None:
        """What it counted since the last report."""

    def traced(self, trace: Members) -> None:
        """A request that is traced was answered."""

    def distrusted(self, worker: str, reason: str) -> None:
        """The certificate of a worker is not one that it goes by."""

    def connected(self, descriptor: int) -> None:
        """Requests that it does not answer come here; the descriptor is the callee's to close."""
        socket.socket(fileno=descriptor).close()

    async def asked(self, question: Members, data: bytes) -> Answer:
        raise NotImplementedError


class DataPlane:
    """For one event loop.

    Attributes:
        listener: who is told and asked.
    """

    def __init__(self, address: bytes, name: str = "data plane") -> None:
        """
        Args:
            address: of the Unix socket where it takes the control plane's connection.
            name: for the log.
        """
        self._address, self._name = address, name
        self.listener: Unheard = Unheard()
        self._link: Link | None = None
        self._reached, self._gone = asyncio.Event(), asyncio.Event()
        self._standing: dict[str, Said] = {}  # orders that are said to each that comes, by their type
        self._table: Table | None = None
        self._loading: dict[int, asyncio.Future[None]] = {}
        self._leaving: dict[int, asyncio.Future[None]] = {}
        self._present: set[int] = set()  # what is loaded
        self._own: set[int] = set()  # and was asked for here
        self._gathering: dict[int, asyncio.Future[None]] = {}
        self._gathers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._pictures: dict[int, asyncio.Task[None]] = {}  # that are being decoded, by question

    async def run(self) -> None:
        """Reaches it, whenever it is there, until canceled."""
        try:
            while True:
                self._gone.clear()
                self._link = Link(await self._connection(), self._hear, self._lose)
                await self._gone.wait()
        finally:
            self._lose()

    async def reached(self) -> None:
        """Waits until there is one, which has heard what stands."""
        await self._reached.wait()

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    @property
    def present(self) -> Collection[int]:
        """The keys of what is loaded."""
        return frozenset(self._present)

    def order(self, members: Members, data: bytes = b"") -> None:
        """Has it do something, now and whenever it comes anew: in the place of an earlier order of this type."""
        if self._standing.get(members["type"]) == (members, data):
            return
        self._standing[members["type"]] = members, data
        if self._reached.is_set():
            self._send(members, data)

    def follow(self, table: Table) -> None:
        """Has it know what has changed in the table since it was told of it; each that comes is told all of it."""
        self._table = table
        if self._reached.is_set() and table.has_changed:
            self._send(table.changes())

    async def load(self, order: Mapping[str, Any]) -> int:
        """Has a model loaded, and returns its key: the same as another process gave what is there already.

        Raises:
            OctetError: it cannot be loaded; or there is no data plane, and none comes.
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
        """What is known of a loaded model, from now on."""
        if key in self._present:
            self._send({**members, "type": "describe", "key": key})

    async def unload(self, key: int) -> None:
        """Lets a model go, and waits until its last request is over."""
        if key not in self._present:
            return
        self._present.discard(key)
        self._own.discard(key)
        done = self._leaving[key] = asyncio.get_running_loop().create_future()
        self._send(orders.unload(key))
        await done

    def leftovers(self) -> Collection[int]:
        """What is loaded, and was asked for by an earlier control plane only."""
        return self._present - self._own - self._loading.keys()

    async def gather(self) -> None:
        """Has everything reported that was counted until now; where nobody is there, nothing is."""
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
            if key not in self._leaving and key not in self._own:
                return key
            salt += 1

    async def _patiently(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._reached.wait()
        except TimeoutError:
            raise Restarting(f"the {self._name} is not there", hint="try again later") from None

    async def _connection(self) -> socket.socket:
        loop, is_told = asyncio.get_running_loop(), False
        began_s = loop.time()
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, self._address)
                return connection
            except OSError as error:
                connection.close()
                if not is_told and loop.time() - began_s > _TELL_AFTER_S:
                    _logger.warning("the %s cannot be reached: %s", self._name, error)
                    is_told = True
                await asyncio.sleep(_PAUSE_S)
            except BaseException:
                connection.close()
                raise

    def _send(self, members: Members, data: bytes = b"") -> None:
        if self._link is not None:
            self._link.send(members, data)

    def _hear(self, message: Members, data: bytes, descriptor: int) -> None:
        match message["type"]:
            case "hello":
                self._greeted(message)
            case "loaded":
                self._present.add(message["key"])
                self._own.add(message["key"])
                _settle(self._loading.pop(message["key"], None))
            case "failed":
                _settle(self._loading.pop(message["key"], None), _failure(message))
            case "unloaded":
                _settle(self._leaving.pop(message["key"], None))
            case "report":
                self.listener.reported(message)
                _settle(self._gathering.pop(message["gather"], None))
            case "question":
                task = self._do(self._answer(message, data))
                if message["kind"] == "picture":
                    self._pictures[message["question"]] = task
                    task.add_done_callback(partial(self._decoded, message["question"], self._link))
            case "withdraw":
                if (decoding := self._pictures.get(message["question"])) is not None:
                    decoding.cancel()
            case "distrusted":
                self.listener.distrusted(message["worker"], message["reason"])
            case "connection":
                self.listener.connected(descriptor)
            case "trace":
                self.listener.traced(message)

    def _greeted(self, hello: Members) -> None:
        if hello["protocol"] != PROTOCOL:
            raise RuntimeError(f"the data plane speaks version {hello['protocol']} of the protocol, not {PROTOCOL}")
        self._present = set(hello["models"])
        self._own &= self._present
        routes = [orders.Named(**each) for each in hello["routes"]]
        if self._table is not None:  # first, or requests would not be forwarded
            self._send(self._table.whole())
        for order in self._standing.values():
            self._send(*order)
        self._reached.set()
        self._do(self.listener.found(Found(frozenset(self._present), routes, hello.get("pid", 0))))

    def _lose(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None
        self._standing.pop("routes", None)
        was_reached = self.is_reached
        self._reached.clear()
        self._present.clear()
        lost = Restarting(f"the {self._name} ended meanwhile", hint="try again later")
        for waiting, error in ((self._loading, lost), (self._gathering, lost), (self._leaving, None)):
            for done in waiting.values():
                _settle(done, error)
            waiting.clear()
        for decoding in self._pictures.values():  # their clients were connected to the data plane that ended
            decoding.cancel()
        self._gone.set()
        if was_reached:
            self.listener.lost()

    async def _answer(self, question: Members, data: bytes) -> None:
        link = self._link
        answer = await self.listener.asked(question, data)
        carries = {"passes": True} if answer.passed is not None else {}
        members = {"type": "answer", "question": question["question"], **carries, **answer.members}
        if link is not None:  # one that is closed says nothing
            link.send(members, answer.data, answer.passed)
        elif answer.passed is not None:
            answer.passed.close()

    def _decoded(self, question: int, link: Link | None, task: asyncio.Task[None]) -> None:
        if self._pictures.get(question) is task:  # the next data plane counts its questions from 1, too
            del self._pictures[question]
        if task.cancelled() and link is not None:  # any response releases what the picture holds there
            link.send({"type": "answer", "question": question, **_WITHDRAWN})

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await work
            except Exception:
                _logger.exception("what the data plane has asked for failed")

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it was canceled before it began
        return task


def _settle(done: asyncio.Future[None] | None, error: Exception | None = None) -> None:
    if done is None or done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        done.exception()  # who waited may have left


def _failure(message: Members) -> OctetError:
    members = {"code": message["code"], "message": message["detail"], "hint": message["hint"] or None}
    error = from_json(members)
    return error if isinstance(error, NotReady) else NotReady(error.message, hint=error.hint)
