"""The sequences of a model that keeps state: which are under way, and whose call comes next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from reprlib import repr as brief
from time import monotonic

from service.core.errors import InvalidInput, QueueFull, UnknownSequence
from service.core.sequence import SequenceState
from service.core.signature import ModelSignature
from service.workers.inference.terms import Abandoned, Step

_HOW = (
    "send the parameter sequence_id, and sequence_start with the first request of a sequence; "
    "one that stands alone has sequence_end, too"
)


class _Live:
    """A sequence under way. Its lock lets one call in at a time, in the order in which they came."""

    def __init__(self, signature: ModelSignature) -> None:
        self.state = SequenceState(signature)
        self.turn = asyncio.Lock()
        self.used_s = monotonic()
        self.is_over = False


class Sequences:
    """Those of one loaded model; they end with it. For the event loop's thread.

    Args:
        most: how many may be under way.
        idle_s: after so long without a request, one is over.
    """

    def __init__(self, signature: ModelSignature, *, most: int, idle_s: float) -> None:
        self._signature, self._most, self._idle_s = signature, most, idle_s
        self._live: dict[int | str, _Live] = {}  # who was used last comes last

    def __len__(self) -> int:
        return len(self._live)

    @asynccontextmanager
    async def turn(self, step: Step | None) -> AsyncIterator[SequenceState]:
        """The state that a request goes on from, once those of its sequence that came before it are answered.

        A block that ends with a failure of the call leaves the state as it was. One that nobody waits for any more may
        leave a call behind that still runs: then the sequence is over.

        Raises:
            InvalidInput: `step` is None.
            UnknownSequence: the sequence is not under way, and the request does not start it.
            QueueFull: too many are.
        """
        if step is None:
            raise InvalidInput("the model keeps state from one request to the next", hint=_HOW)
        live = self._started(step) if step.starts else self._found(step)
        async with live.turn:
            if live.is_over:
                raise self._unknown(step)
            try:
                yield live.state
            except (asyncio.CancelledError, Abandoned):
                self._end(step, live)
                raise
            except Exception:
                if step.starts:  # it never began
                    self._end(step, live)
                raise
            live.used_s = monotonic()
            if step.ends:
                self._end(step, live)

    def _started(self, step: Step) -> _Live:
        self._drop_idle()
        old = self._live.pop(step.id, None)
        if old is not None:
            old.is_over = True
        if len(self._live) >= self._most:
            raise QueueFull(f"{self._most} sequences of the model are under way", hint="end one with sequence_end")
        live = self._live[step.id] = _Live(self._signature)
        return live

    def _found(self, step: Step) -> _Live:
        self._drop_idle()
        live = self._live.pop(step.id, None)
        if live is None:
            raise self._unknown(step)
        self._live[step.id] = live
        live.used_s = monotonic()
        return live

    def _drop_idle(self) -> None:
        """Ends those that nobody asks for any more."""
        now_s = monotonic()
        for id_, live in list(self._live.items()):
            if now_s - live.used_s < self._idle_s:
                return  # those after it were used later
            if not live.turn.locked():
                live.is_over = True
                del self._live[id_]

    def _end(self, step: Step, live: _Live) -> None:
        live.is_over = True
        if self._live.get(step.id) is live:
            del self._live[step.id]

    def _unknown(self, step: Step) -> UnknownSequence:
        return UnknownSequence(
            f"the sequence {brief(step.id)} is not under way: it was not started or is over, nobody asked for it for "
            f"{self._idle_s:g} s, or the model was loaded anew",
            hint=_HOW,
        )
