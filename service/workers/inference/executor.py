"""One loaded model's queue, for the event loop: admission, deadlines, and answers that come back from its threads.

The queue and its threads are native (`service.native.ModelQueue`): requests that never reach Python wait in it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from time import monotonic

from service.core.errors import DeadlinePassed, QueueFull
from service.core.queueing import Scheduling
from service.core.signature import ModelSignature
from service.native import Job, Mailbox, ModelQueue, Outcome
from service.workers.inference.observer import ModelObserver, Unobserved
from service.workers.inference.permit import Permit, Stages
from service.workers.inference.runner import Array
from service.workers.inference.sequences import Sequences
from service.workers.inference.variants import Variants


class Executor:
    """Admits requests to one model and runs them. Methods are for the event loop's thread, where they do not say so.

    Attributes:
        sequences: of a model that keeps state; None for any other.
        queue: its queue.
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
        self.sequences = _sequences(variants.signature, scheduling)
        self._observer: ModelObserver = observer or Unobserved()
        self._loop = asyncio.get_running_loop()
        self._instances = [variants, *(variants.clone() for _ in range(scheduling.instances - 1))]
        self._outputs = len(variants.signature.outputs)
        self._keys, self._submitted = count(), dict[int, Permit]()
        self._mailbox = Mailbox.empty()
        self._loop.add_reader(self._mailbox.descriptor(), self._collect)
        self.queue = ModelQueue.start(
            name,
            [instance.runners for instance in self._instances],
            queue_size=scheduling.queue_size,
            max_wait_s=scheduling.max_wait_s,
            levels=scheduling.priority_levels,
            max_batch=scheduling.max_batch,
            max_delay_s=scheduling.max_delay_s,
        )
        self.queue.plan(variants.plan.table)

    @property
    def admitted(self) -> int:
        """Requests that hold a permit. From any thread."""
        return self.queue.admitted()

    @property
    def queued(self) -> int:
        """Those of them that wait for a thread. From any thread."""
        return self.queue.queued()

    @property
    def has_to_wait(self) -> bool:
        """Whether a request that is admitted now, or was last, finds every instance busy."""
        return self.queue.has_to_wait()

    def permit(self, timeout_s: float | None = None) -> Permit:
        """A place in the queue, which is given back at the end of a `with` block.

        Args:
            timeout_s: within which the call has to begin.

        Raises:
            QueueFull: every place is taken.
        """
        if not self.queue.admit():
            raise queue_full(self.queue.retry_after_s())
        return Permit(self, timeout_s, monotonic())

    def release(self, permit: Permit) -> None:
        """Ends the permit."""
        self.withdraw(permit)
        self.queue.release(permit.has_place)

    def lend(self, permit: Permit) -> None:
        """Gives its place to others, if it has one and its request is not there yet."""
        if permit.has_place:
            permit.has_place = False
            self.queue.lend()

    def claim(self, permit: Permit) -> None:
        """Takes a place for it, if it was lent. Raises `QueueFull`."""
        if not permit.has_place:
            if not self.queue.claim():
                raise queue_full(self.queue.retry_after_s())
            permit.has_place = True

    def submit(self, permit: Permit, inputs: Sequence[Array], priority: int) -> None:
        """Has `permit.settle` called once. Raises `DeadlinePassed`, `InvalidInput`, `InvalidTensor`."""
        level = self.scheduling.level_of(priority)
        permit.fitted = self._instances[0].fitted(inputs)
        inputs = inputs if permit.fitted is None else permit.fitted.inputs
        samples = self._instances[0].samples_of(inputs)
        if permit.deadline_s is not None and permit.deadline_s <= monotonic():
            raise DeadlinePassed
        states = permit.state.tensors if permit.state else []
        key = next(self._keys)
        permit.job = Job.of(
            key, [*inputs, *states], self._mailbox, level=level, samples=samples, deadline_s=permit.deadline_s
        )
        self._submitted[key] = permit
        permit.has_place = False  # it is the job's
        self.queue.submit(permit.job)

    def withdraw(self, permit: Permit) -> bool:
        """Whether it was still waiting: it does so no longer, and its tensors are let go."""
        job, permit.job = permit.job, None
        if job is None:
            return False
        if not self.queue.withdraw(job):
            permit.job = job
            return False
        del self._submitted[job.key]
        self._loop.call_soon(self.report)
        return True

    async def warm(self) -> None:
        """Waits until every instance has run each of its sizes on its own thread. Raises what a run raised.

        Page faults and the runtime's thread pools, which are per thread, are then paid for, and the first instance's
        measurements are everybody's plan.
        """
        for index, instance in enumerate(self._instances):
            done: asyncio.Future[None] = self._loop.create_future()
            self.queue.post(index, self._notifying(instance.warm, done))
            await done
            instance.plan = self._instances[0].plan
            self.queue.plan(instance.plan.table)

    def close(self) -> None:
        """Lets the threads end when they have run what is queued and nobody holds a permit; does not wait for them."""
        self.queue.close()

    async def closed(self) -> None:
        """Waits for the threads, after `close`."""
        await asyncio.to_thread(self.queue.join)
        self._collect()
        self.report()
        self._loop.remove_reader(self._mailbox.descriptor())

    def report(self) -> None:
        """Tells the observer what happened in the queue since it was told last."""
        waits_s, calls = self.queue.happened()
        if len(waits_s):
            self._observer.waited(waits_s)
        if len(calls):
            self._observer.computed(*calls.T)

    def _notifying(self, task: Callable[[], None], done: asyncio.Future[None]) -> Callable[[], None]:
        """`task` for another thread, after which `done` is settled."""

        def run() -> None:
            error: Exception | None = None
            try:
                task()
            except Exception as exc:  # whatever it is, it is the loader's
                error = exc
            with suppress(RuntimeError):  # the event loop was closed, and nobody waits
                self._loop.call_soon_threadsafe(_end, done, error)

        return run

    def _collect(self) -> None:
        """Gives each permit the outcome of its job."""
        jobs, now_s = self._mailbox.take(), monotonic()
        found = [(job, self._submitted.pop(job.key)) for job in jobs]
        for job, permit in found:
            permit.job = None
            if job.outcome() == Outcome.LATE:
                permit.settle((), DeadlinePassed())
                continue
            call, requests, samples = job.batch()
            batch_tags = tuple(other.tag for each, other in found if other.tag is not None and each.batch()[0] == call)
            submitted_s, taken_s, run_s, ended_s = job.stages()
            stages = Stages.between(
                submitted_s, taken_s, run_s, ended_s, now_s, requests=requests, samples=samples, batch_tags=batch_tags
            )
            if job.outcome() == Outcome.FAILED:
                permit.settle((), job.failure(), stages)
            else:
                permit.settle(self._answer(job, permit), None, stages)
        if jobs:
            self._loop.call_soon(self.report)  # after the answers that were just made ready

    def _answer(self, job: Job, permit: Permit) -> Sequence[Array]:
        arrays = job.arrays()
        if permit.state is not None:
            permit.state.advance(arrays[self._outputs :])
        if permit.fitted is not None:
            return permit.fitted.cut(self._instances[0].signature, arrays)
        return arrays[: self._outputs]


def queue_full(retry_after_s: float) -> QueueFull:
    """What is said to who finds no place in a model's queue."""
    return QueueFull(hint="try again later, or use fewer connections", retry_after_s=retry_after_s)


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
