"""One request's place with a loaded model, from its admission to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from service.core.buckets import Fitted
from service.core.errors import DeadlinePassed
from service.core.queueing import Scheduling
from service.core.sequence import SequenceState
from service.native import Job
from service.workers.inference.runner import Array
from service.workers.inference.sequences import Sequences
from service.workers.inference.terms import USUAL, Abandoned, Terms


class Admission(Protocol):
    """The part of `Executor` that a permit needs."""

    scheduling: Scheduling
    sequences: Sequences | None

    @property
    def has_to_wait(self) -> bool: ...
    def release(self, permit: Permit) -> None: ...
    def lend(self, permit: Permit) -> None: ...
    def claim(self, permit: Permit) -> None: ...
    def submit(self, permit: Permit, inputs: Sequence[Array], priority: int) -> None: ...
    def withdraw(self, permit: Permit) -> bool: ...


class Stages(NamedTuple):
    """Where the time of an answered request went.

    Attributes:
        queued_s: from its submission until a thread took it.
        batched_s: until it had been brought together with others, and the deadlines been looked at.
        run_s: of the call.
        returned_s: from the end of the call until the event loop had the answer.
        requests: that were computed in the same call.
        samples: of all of them.
        taken_s: when the thread took it, by `time.monotonic`.
        batch_tags: the tags of the requests in its batch that have one, its own too.
    """

    queued_s: float
    batched_s: float
    run_s: float
    returned_s: float
    requests: int
    samples: int
    taken_s: float
    batch_tags: tuple[Any, ...]

    @staticmethod
    def between(
        submitted_s: float,
        taken_s: float,
        run_s: float,
        ended_s: float,
        returned_s: float,
        *,
        requests: int,
        samples: int,
        batch_tags: tuple[Any, ...] = (),
    ) -> Stages:
        """From when it was submitted, a thread took it, its call, of `run_s`, ended, and its answer was there."""
        queued_s, batched_s = taken_s - submitted_s, ended_s - taken_s - run_s
        return Stages(queued_s, batched_s, run_s, returned_s - ended_s, requests, samples, taken_s, batch_tags)


class Permit:
    """A place, which is given back at the end of a `with` block. For the event loop's thread.

    Attributes:
        has_place: whether it counts among those that wait, and its request is not submitted yet.
        job: its request, from its submission to its outcome.
        stages: once it was answered.
        state: of its sequence, where the model keeps one.
        fitted: its request as a bucket takes it, where the model has some.
        tag: whatever the caller wants to be told of when requests are computed together; None for nothing.
        deadline_s: until when its call has to begin, by `time.monotonic`; None for whenever.
    """

    __slots__ = (
        *("_admitted_s", "_executor", "_future", "_is_abandoned", "_timeout_s"),
        *("deadline_s", "fitted", "has_place", "job", "stages", "state", "tag"),
    )

    def __init__(self, executor: Admission, timeout_s: float | None, admitted_s: float) -> None:
        """Of a place that `Executor.permit` has taken."""
        self._executor, self._timeout_s, self._admitted_s = executor, timeout_s, admitted_s
        self._future: asyncio.Future[Sequence[Array]] | None = None
        self.has_place = True
        self.job: Job | None = None
        self.state: SequenceState | None = None
        self.fitted: Fitted | None = None
        self._is_abandoned = False
        self.deadline_s: float | None = None
        self.stages: Stages | None = None
        self.tag: Any = None

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._executor.release(self)

    @property
    def has_to_wait(self) -> bool:
        """Whether its call cannot begin at once, so that it pays to watch for the client's leaving."""
        return self._executor.has_to_wait

    def lend(self) -> None:
        """Lets others have the place while the request is not there yet; `claim` takes one again."""
        self._executor.lend(self)

    def claim(self) -> None:
        """Takes a place if this one was lent. Raises `QueueFull`."""
        self._executor.claim(self)

    async def run(self, inputs: Sequence[Array], terms: Terms = USUAL) -> Sequence[Array]:
        """The model's outputs for `inputs`, both in the signature's order.

        A request whose task is canceled, or that is abandoned, before its turn is never executed.

        Of the timeouts of `terms` and of the permit the shorter one counts, and where there is none, the model's.

        Raises:
            Abandoned: `abandon` was called meanwhile.
            DeadlinePassed: its call could not begin in time.
            InvalidInput: there is no such priority, or no sequence is named of a model that keeps state;
                `InvalidTensor`: an input does not fit the signature.
            UnknownSequence: the sequence is not under way; `QueueFull`: too many are.
        """
        sequences = self._executor.sequences
        if sequences is None:
            return await self._run(inputs, terms)
        async with sequences.turn(terms.step) as self.state:
            if self._is_abandoned:
                raise Abandoned
            return await self._run(inputs, terms)

    async def _run(self, inputs: Sequence[Array], terms: Terms) -> Sequence[Array]:
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = self._set_deadline(terms.timeout_s, loop)
        try:
            self._executor.submit(self, inputs, terms.priority)
            return await self._future
        except asyncio.CancelledError:
            self._executor.withdraw(self)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def abandon(self) -> None:
        """Ends `run` with `Abandoned`, if it has not ended yet."""
        self._is_abandoned = True
        if self._future is not None and not self._future.done():
            self._executor.withdraw(self)
            self._future.set_exception(Abandoned())

    def settle(self, outputs: Sequence[Array], error: BaseException | None, stages: Stages | None = None) -> None:
        """Ends `run`, if it has not ended yet."""
        if self._future is None or self._future.done():
            return
        self.stages = stages
        if error is None:
            self._future.set_result(outputs)
        else:
            self._future.set_exception(error)

    def _set_deadline(self, timeout_s: float | None, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle | None:
        timeouts_s = [each for each in (self._timeout_s, timeout_s) if each is not None]
        timeout_s = min(timeouts_s, default=self._executor.scheduling.timeout_s)
        if timeout_s is None:
            return None
        self.deadline_s = self._admitted_s + timeout_s
        return loop.call_later(max(0.0, self.deadline_s - monotonic()), self._expire)

    def _expire(self) -> None:
        if self._executor.withdraw(self):  # a call that has begun goes on, and its answer is given
            self.settle((), DeadlinePassed())
