"""The queue of pictures, texts, sounds and tables that wait to be preprocessed. It calls all of them pictures.

The data plane limits how many pictures, bytes and pixels each client may have in this queue (`Resource::kPictures` and
the constants next to it in peer_budget.h). The data plane withdraws a picture when the picture's client has left or its
deadline has passed. This queue decides which picture is decoded next, and limits the memory of the pictures that are
being decoded:

- Clients take turns. If a client sends a hundred pictures, another client's picture waits for at most one of them.
- Pictures have one of three sizes. Those of a larger size leave a thread to each smaller size, so that a picture never
  waits for larger ones.
- Large pictures share the memory of one picture of the largest size, or of a few, and medium ones that of half of one.
- A picture that is withdrawn while it waits is never decoded. One that is being decoded stops after the current piece.
- A thread cannot be stopped within a piece. If a piece needs more processor time than its limit, the request fails, and
  the process has to end, so that the requests of other clients continue in the next process.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from threading import Event, get_ident
from time import clock_gettime, monotonic, pthread_getcpuclockid

from service.core.errors import OctetError, TooLarge
from service.core.models.picture import MAX_PIXELS

_LIMIT_S = 120.0  # no picture needs this long
SMALL_PIXELS = 1 << 20  # pictures of up to this size are decoded in some ten milliseconds
_MEDIUM_PIXELS = 4 << 20
_LEAST_THREADS = 3  # one for each size

_NETWORK_BITS = 64  # the network part of an IPv6 address; a client can use any number of addresses of its network


class Endless(Exception):
    """Work has exceeded a time limit. Its thread cannot be stopped, so the process has to end."""

    def __init__(self, error: OctetError) -> None:
        super().__init__(error.message)
        self.error = error


class Progress:
    """The state of work that a thread does, for the thread and for the event loop that waits for it.

    The thread calls this object, which returns true once the work is withdrawn.
    """

    def __init__(self, limit_s: float) -> None:
        """
        Args:
            limit_s: the longest time for the work as a whole.
        """
        self._is_withdrawn = Event()
        self._ends_s = monotonic() + limit_s
        self._piece: tuple[int, float] | None = None  # the clock of the thread, and its time at which the piece ends

    def __call__(self) -> bool:
        return self._is_withdrawn.is_set()

    def begin_piece(self, limit_s: float) -> None:
        """Begins a piece of the work, which cannot be interrupted. Must be called by the thread.

        Args:
            limit_s: the processor time that the piece may need. On a busy machine it takes longer.
        """
        clock = pthread_getcpuclockid(get_ident())
        self._piece = clock, clock_gettime(clock) + limit_s

    def withdraw(self) -> None:
        self._is_withdrawn.set()

    @property
    def is_overdue(self) -> bool:
        """True if the work, or its current piece, has exceeded its limit. The thread must still be at work."""
        if monotonic() > self._ends_s:
            return True
        piece = self._piece
        return piece is not None and clock_gettime(piece[0]) > piece[1]


Decode = Callable[[Progress], bytes]


@dataclass(eq=False)
class _Picture:
    client: str
    decode: Decode
    pixels: int
    may_start: asyncio.Future[None]
    limit_s: float
    progress: Progress | None = None  # set when the work begins


class _Line:
    """The waiting pictures of one size. The next picture comes from the client whose last turn is the longest
    ago.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Picture]] = {}
        self._running: Counter[str] = Counter()
        self._served: dict[str, int] = {}  # by client with waiting pictures: the number of its last turn
        self._turns = 0

    def add(self, picture: _Picture) -> None:
        self._waiting.setdefault(picture.client, deque()).append(picture)

    def next(self) -> _Picture | None:
        """Returns the picture whose turn it is, or None. Removes withdrawn pictures."""
        while self._waiting:
            client = min(self._waiting, key=lambda each: self._served.get(each, 0))
            first = self._waiting[client][0]
            if not first.may_start.done():
                return first
            self._drop_first(client)
        return None

    def start(self, picture: _Picture) -> None:
        """Removes the picture that `next` returned."""
        self._turns += 1
        self._served[picture.client] = self._turns
        self._running[picture.client] += 1
        self._drop_first(picture.client)

    def end(self, picture: _Picture) -> None:
        self._running[picture.client] -= 1
        self._forget(picture.client)

    def is_served(self, client: str) -> bool:
        """Returns true if a picture of the client is being decoded."""
        return self._running[client] > 0

    def _drop_first(self, client: str) -> None:
        self._waiting[client].popleft()
        if not self._waiting[client]:
            del self._waiting[client]
            self._forget(client)

    def _forget(self, client: str) -> None:
        if client not in self._waiting and not self._running[client]:
            del self._running[client]
            self._served.pop(client, None)


class _Size:
    """The pictures of one size, and the memory that they share.

    Attributes:
        running: the number of pictures that are being decoded.
    """

    def __init__(self, largest: int, room: int, reserve: int = 0) -> None:
        """
        Args:
            largest: the limit of this size, in pixels.
            room: how many pixels may be decoded at the same time.
            reserve: the part of the room that is left to clients without a picture that is being decoded.
        """
        self.largest, self.running = largest, 0
        self._room, self._reserve = room, reserve
        self._line = _Line()

    def add(self, picture: _Picture) -> None:
        self._line.add(picture)

    def next(self) -> _Picture | None:
        """Returns the picture whose turn it is, or None if there is none, or no room for it."""
        picture = self._line.next()
        if picture is None:
            return None
        reserve = self._reserve if self._line.is_served(picture.client) else 0
        return picture if picture.pixels + reserve <= self._room else None

    def start(self, picture: _Picture) -> None:
        self._line.start(picture)
        self.running += 1
        self._room -= picture.pixels

    def end(self, picture: _Picture) -> None:
        self._line.end(picture)
        self.running -= 1
        self._room += picture.pixels


class PictureQueue:
    """A queue of pictures to decode. For one event loop."""

    def __init__(self, threads: int | None = None, largest_at_a_time: int = 1) -> None:
        """
        Args:
            threads: the number of threads that decode pictures, at least three. The default is one for each core.
            largest_at_a_time: how many pictures of the largest size may be decoded at the same time. If several, one
                client leaves room for a picture of another client.
        """
        self._threads = max(_LEAST_THREADS, threads or len(os.sched_getaffinity(0)))
        self._executor = ThreadPoolExecutor(self._threads, "octet-decode")
        self._small = _Size(SMALL_PIXELS, SMALL_PIXELS * self._threads)
        self._medium = _Size(_MEDIUM_PIXELS, MAX_PIXELS // 2)
        room = largest_at_a_time * MAX_PIXELS
        self._large = _Size(MAX_PIXELS, room, reserve=room - MAX_PIXELS)
        self._decoding: dict[_Picture, asyncio.Future[None]] = {}  # with futures that fail if a limit is exceeded

    @property
    def is_busy(self) -> bool:
        return bool(self._decoding)

    def fail_overdue(self) -> bool:
        """Lets `run` raise `Endless` for work that has exceeded a time limit. Returns true if there is such work. Its
        thread is lost.
        """
        late = [future for each, future in self._decoding.items() if each.progress and each.progress.is_overdue]
        for future in late:
            if not future.done():
                future.set_exception(Endless(TooLarge("the request takes too long to preprocess", hint="send less")))
        return bool(late)

    async def run(
        self,
        client: str,
        pixels: int | None,
        decode: Decode,
        limit_s: float = _LIMIT_S,
        began: Callable[[], None] = lambda: None,
    ) -> bytes:
        """Waits until it is the picture's turn, calls `decode` on a thread, and returns its result.

        If the caller is canceled, the picture is withdrawn. This method then returns when no thread works on the
        picture any more, or raises `Endless` if a limit is exceeded before.

        Args:
            client: the address of the client that sent the picture.
            pixels: the size of the picture according to its header, or None if the header is damaged.
            decode: called with an object that returns true, when it is called, once the picture is withdrawn.
            limit_s: the longest time that `decode` may take.
            began: called before a thread calls `decode`.

        Raises:
            Endless: `decode` took longer, and `fail_overdue` was called.
        """
        size = MAX_PIXELS if pixels is None else min(pixels, MAX_PIXELS)
        loop = asyncio.get_running_loop()
        waiting = _Picture(_network_of(client), decode, size, loop.create_future(), limit_s)
        self._size_of(waiting).add(waiting)
        self._start()
        await waiting.may_start  # canceling it cancels the future, too, so that `_Line.next` drops the picture
        began()
        progress = waiting.progress = Progress(limit_s)
        work = loop.run_in_executor(self._executor, _decoded, decode, progress)
        has_failed = self._decoding[waiting] = loop.create_future()
        try:
            await asyncio.wait([work, has_failed], return_when=asyncio.FIRST_COMPLETED)
            if has_failed.done():
                work.add_done_callback(_retrieve)
                has_failed.result()
            return work.result()
        except asyncio.CancelledError:
            progress.withdraw()
            work.add_done_callback(_retrieve)
            while not (work.done() or has_failed.done()):  # the caller may be canceled a second time
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([work, has_failed], return_when=asyncio.FIRST_COMPLETED)
            if has_failed.done():
                has_failed.result()
            raise
        finally:
            self._end(waiting)

    def _start(self) -> None:
        """Starts as many pictures as threads and memory allow. Sizes of which no picture is being decoded go first, the
        largest one before the others; after them, small pictures go before larger ones.
        """
        sizes = (self._large, self._medium, self._small)
        while (free := self._threads - sum(each.running for each in sizes)) > 0:
            idle = [each for each in sizes if not each.running]
            order = [*idle, self._small]
            if free > len(idle):  # each size that is idle keeps a thread
                order += [self._large, self._medium]
            found = next(((size, picture) for size in order if (picture := size.next())), None)
            if found is None:
                return
            size, picture = found
            size.start(picture)
            picture.may_start.set_result(None)

    def _size_of(self, picture: _Picture) -> _Size:
        return next(each for each in (self._small, self._medium, self._large) if picture.pixels <= each.largest)

    def _end(self, picture: _Picture) -> None:
        self._size_of(picture).end(picture)
        self._decoding.pop(picture, None)
        self._start()


def _decoded(decode: Decode, progress: Progress) -> bytes:
    try:
        return decode(progress)
    except StopIteration as error:  # which a future cannot contain, so that `run` would wait forever
        raise RuntimeError("the work raised StopIteration") from error


def _retrieve(work: asyncio.Future[bytes]) -> None:
    """Marks the exception as retrieved, so that asyncio does not log it."""
    if not work.cancelled():
        work.exception()


def _network_of(client: str) -> str:
    """Returns the network of an IPv6 address. Returns any other address unchanged."""
    try:
        address = ip_address(client)
    except ValueError:  # the client uses a Unix socket
        return client
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(int(address) >> _NETWORK_BITS)
    return client
