"""One loaded model: who may wait for it, and the threads that run it.

The event loop and the threads meet at the backlog, under one lock that nobody holds for longer than it takes to move a
request. A thread that has ended a call takes the next requests itself; the event loop wakes one only when it is idle.
So a request takes two wake-ups where the model is idle, and a call follows the other without any where it is not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import monotonic

from service.core.errors import DeadlinePassed, QueueFull
from service.core.signature import ModelSignature
from service.workers.inference.backlog import Backlog
from service.workers.inference.observer import ModelObserver, Unobserved
from service.workers.inference.permit import Permit, Stages
from service.workers.inference.runner import Array
from service.workers.inference.scheduling import Scheduling
from service.workers.inference.sequences import Sequences
from service.workers.inference.variants import Variants

_COMPANY_S = 0.1  # clients that ask again at once are together in between, too
_MEMORY = 0.8  # of the time that a request takes: what the last five calls took counts for two thirds


class _Instance:
    """One instance and its thread, which does what it is told and then waits to be told more."""

    def __init__(self, variants: Variants, name: str) -> None:
        self.variants = variants
        self.is_running = False  # a call; the executor's lock guards it
        self._errands: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def tell(self, errand: Callable[[], object] | None) -> None:
        """`errand` is called on the thread; None ends it."""
        self._errands.put(errand)

    def _work(self) -> None:
        while (errand := self._errands.get()) is not None:
            errand()


class Executor:
    """Admits requests to one model and runs them. Methods are for the event loop's thread, where they do not say so.

    Attributes:
        sequences: of a model that keeps state; None for any other.
    """

    def __init__(
        self,
        variants: Variants,
        *,
        scheduling: Scheduling,
        observer: ModelObserver | None = None,
        name: str = "model",
    ) -> None:
        """Starts the threads.

        Args:
            variants: the first instance; the others are its clones.
            scheduling: the rules.
            observer: told of every request.
            name: for the threads.
        """
        self.scheduling = scheduling
        self._variants = variants
        self.sequences = _sequences(variants.signature, scheduling)
        self._observer: ModelObserver = observer or Unobserved()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._backlog: Backlog[Permit] = Backlog(scheduling.priority_levels)
        copies = [variants, *(variants.clone() for _ in range(scheduling.instances - 1))]
        self._instances = [_Instance(copy, f"octet-infer-{name}-{index}") for index, copy in enumerate(copies)]
        self._idle = self._instances[::-1]  # the last one that worked is the next: its caches are warm
        self._free = len(self._instances)  # the idle ones, and those that were woken and have not begun a call
        self._waiting = 0  # places taken by requests whose call has not begun
        self._admitted = 0
        self._company, self._company_until_s = 1, 0.0  # the most that were admitted together lately
        self._request_s = 0.0  # what a request adds to the time of a call, lately
        self._closing = False

    @property
    def admitted(self) -> int:
        """Requests that hold a permit. From any thread."""
        return self._admitted

    @property
    def queued(self) -> int:
        """Those of them that wait for a thread. From any thread."""
        return len(self._backlog)

    @property
    def has_to_wait(self) -> bool:
        """Whether a request that is admitted now, or was last, finds every instance busy."""
        return self._waiting > self._free or self.scheduling.max_delay_s > 0

    @property
    def retry_after_s(self) -> float:
        """When all that wait now will have been served, as far as the last calls tell."""
        return self._waiting * self._request_s / len(self._instances)

    def permit(self, timeout_s: float | None = None) -> Permit:
        """A place in the queue, which is given back at the end of a `with` block.

        Args:
            timeout_s: within which the call has to begin.

        Raises:
            QueueFull: every place is taken.
        """
        self._take_place()
        permit = Permit(self, timeout_s, monotonic())
        self._admitted += 1
        self._meet(permit.submitted_s)
        return permit

    def release(self, permit: Permit) -> None:
        """Ends the permit."""
        if permit.has_place:
            self.withdraw(permit)
            self.lend(permit)
        self._admitted -= 1

    def lend(self, permit: Permit) -> None:
        """Gives its place to others, if it has one and its request is not there yet."""
        with self._lock:
            if permit.has_place and not permit.is_queued:
                permit.has_place = False
                self._waiting -= 1

    def claim(self, permit: Permit) -> None:
        """Takes a place for it, if it was lent. Raises `QueueFull`."""
        if not permit.has_place:
            self._take_place()
            permit.has_place = True

    def submit(self, permit: Permit, inputs: Sequence[Array], priority: int) -> None:
        """Has `permit.settle` called once. Raises `DeadlinePassed`, `InvalidInput`, `InvalidTensor`."""
        permit.level = self.scheduling.level_of(priority)
        permit.samples = self._variants.samples_of(inputs)
        permit.inputs = inputs
        now_s = permit.submitted_s = monotonic()
        if permit.deadline_s is not None and permit.deadline_s <= now_s:
            raise DeadlinePassed
        with self._lock:
            self._backlog.add(permit)
            permit.is_queued = True
        self._wake()
        if permit.is_queued and self.scheduling.max_delay_s > 0:
            self._loop.call_later(self.scheduling.max_delay_s, self._delayed, permit)

    def withdraw(self, permit: Permit) -> bool:
        """Whether it was still waiting: it does so no longer, and its tensors are let go."""
        with self._lock:
            if not permit.is_queued:
                return False
            self._backlog.remove(permit)
            self._leave(permit)
        permit.inputs = ()
        self._observer.dropped(monotonic() - permit.submitted_s)
        return True

    async def warm(self) -> None:
        """Waits until every instance has run each of its sizes on its own thread. Raises what a run raised.

        Page faults and the runtime's thread pools, which are per thread, are then paid for, and the first instance's
        measurements are everybody's plan.
        """
        for instance in self._instances:
            done: asyncio.Future[None] = self._loop.create_future()
            instance.tell(lambda instance=instance, done=done: self._warm(instance, done))  # type: ignore[misc]
            await done
            instance.variants.plan = self._variants.plan

    def close(self) -> None:
        """Lets the threads end when they have run what is queued; does not wait for them."""
        self._closing = True
        for instance in self._instances:
            instance.tell(lambda instance=instance: self._serve(instance))  # type: ignore[misc]
            instance.tell(None)

    async def closed(self) -> None:
        """Waits for the threads, after `close`."""
        for instance in self._instances:
            await asyncio.to_thread(instance.thread.join)

    def _take_place(self) -> None:
        with self._lock:
            if self._waiting < self.scheduling.queue_size + self._free:
                self._waiting += 1
                return
        raise QueueFull(hint="try again later, or from fewer connections", retry_after_s=self.retry_after_s)

    def _meet(self, now_s: float) -> None:
        if self._admitted >= self._company or now_s > self._company_until_s:
            self._company, self._company_until_s = self._admitted, now_s + _COMPANY_S

    def _leave(self, permit: Permit) -> None:
        """Under the lock: its turn has come, or nobody waits for it."""
        permit.has_place = permit.is_queued = False
        self._waiting -= 1

    def _wake(self) -> None:
        """Has an idle instance serve what is due."""
        with self._lock:
            instance = self._idle.pop() if self._idle and self._is_due(monotonic()) else None
        if instance is not None:
            instance.tell(lambda: self._serve(instance))

    def _delayed(self, permit: Permit) -> None:
        """It has waited for company long enough; but timers may come early, uvloop's by a millisecond."""
        left_s = permit.submitted_s + self.scheduling.max_delay_s - monotonic()
        if permit.is_queued and left_s > 0:
            self._loop.call_later(left_s, self._delayed, permit)
        elif permit.is_queued:
            self._wake()

    def _settle(
        self,
        permits: Sequence[Permit],
        outputs: Sequence[Sequence[Array]],
        error: Exception | None,
        taken_s: float,
        ended_s: float,
        run_s: float,
    ) -> None:
        samples, returned_s = sum(permit.samples for permit in permits), monotonic() - ended_s
        batched_s = ended_s - taken_s - run_s
        waits_s = [taken_s - permit.submitted_s for permit in permits]
        company = tuple(permit.tag for permit in permits if permit.tag is not None)
        for permit, answer, queued_s in zip(permits, outputs, waits_s, strict=True):
            stages = Stages(queued_s, batched_s, run_s, returned_s, len(permits), samples, taken_s, company)
            permit.settle(answer, error, stages)
        # After the answers that were just made ready.
        self._loop.call_soon(self._observer.computed, waits_s, samples, run_s)

    def _refuse(self, permits: Sequence[Permit], now_s: float) -> None:
        for permit in permits:
            permit.settle((), DeadlinePassed())
            self._observer.dropped(now_s - permit.submitted_s)

    @property
    def _most(self) -> int:
        """Samples of one call of several requests."""
        return min(self.scheduling.max_batch or self._variants.plan.most, self._variants.plan.most)

    def _is_due(self, now_s: float) -> bool:
        """Under the lock: whether requests are to be served now, or others that may join them be waited for.

        For no more than were there together lately: who is alone is never kept waiting.
        """
        max_delay_s = self.scheduling.max_delay_s
        if not self._backlog.samples or max_delay_s == 0 or self._closing:
            return self._backlog.samples > 0
        oldest = self._backlog.oldest
        return self._backlog.samples >= min(self._most, self._company) or (
            oldest is not None and now_s - oldest.submitted_s >= max_delay_s
        )

    # What follows runs on the instances' threads.

    def _warm(self, instance: _Instance, done: asyncio.Future[None]) -> None:
        error: Exception | None = None
        try:
            instance.variants.warm()
        except Exception as exc:  # whatever it is, it is the loader's
            error = exc
        self._tell_loop(partial(_end, done, error))

    def _serve(self, instance: _Instance) -> None:
        """Runs calls until nothing is due. What comes next is settled before a call's answers are: then this thread
        waits again, or computes, and the event loop's need not contend with it for the interpreter.
        """
        answered: Callable[[], None] | None = None
        while True:
            taken_s = monotonic()
            chosen, late = self._take(instance, taken_s)
            if answered is not None:
                self._tell_loop(answered)
            if late:
                self._tell_loop(partial(self._refuse, late, taken_s))
            if not chosen:
                answered = None
                if not late:
                    return
                continue
            answered = self._run(instance.variants, chosen, taken_s)
            del chosen  # or its tensors would live until the next

    def _take(self, instance: _Instance, now_s: float) -> tuple[list[Permit], list[Permit]]:
        """Those that `instance` is to run now, and those that are too late. If there are neither, it is idle."""
        with self._lock:
            chosen: list[Permit] = []
            late: list[Permit] = []
            if self._is_due(now_s):
                chosen, late = self._backlog.take(now_s, self._most, self._variants.plan.is_one_call)
            for permit in (*chosen, *late):
                self._leave(permit)
            self._free += instance.is_running - bool(chosen)
            instance.is_running = bool(chosen)
            if not chosen and not late:
                self._idle.append(instance)
            return chosen, late

    def _run(self, variants: Variants, permits: list[Permit], taken_s: float) -> Callable[[], None]:
        """What the event loop has to do about their answers."""
        outputs: Sequence[Sequence[Array]] = [()] * len(permits)
        error: Exception | None = None
        try:
            outputs = variants.run([permit.inputs for permit in permits], permits[0].state)
        except Exception as exc:  # whatever it is, it is the callers': this thread has other requests to answer
            error = exc
        ended_s = monotonic()
        request_s = (ended_s - taken_s) / len(permits)
        self._request_s = _MEMORY * (self._request_s or request_s) + (1 - _MEMORY) * request_s
        return partial(self._settle, permits, outputs, error, taken_s, ended_s, variants.run_s)

    def _tell_loop(self, errand: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the event loop was closed, and nobody waits
            self._loop.call_soon_threadsafe(errand)


def _sequences(signature: ModelSignature, scheduling: Scheduling) -> Sequences | None:
    if not signature.states:
        return None
    return Sequences(signature, most=scheduling.max_sequences, idle_s=scheduling.sequence_idle_s)


def _end(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
