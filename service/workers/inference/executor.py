"""One loaded model: a bounded queue, and an execution thread for each instance.

The event loop hands a request to a thread through a `SimpleQueue` and gets the answer through
`call_soon_threadsafe`: two wake-ups, no lock, no executor pool between them. Counting happens on the event loop only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from types import TracebackType

import numpy as np

from service.core.errors import QueueFull
from service.workers.inference.observer import ModelObserver, Unobserved
from service.workers.inference.runner import Array, Runner


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


class _Job:
    __slots__ = ("abandoned", "future", "inputs", "loop", "observer", "submitted_s")

    def __init__(self, inputs: Sequence[Array], observer: ModelObserver) -> None:
        self.inputs = inputs
        self.observer = observer
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Sequence[Array]] = self.loop.create_future()
        self.abandoned = False
        self.submitted_s = perf_counter()

    def abandon(self) -> None:
        """Gives the tensors back at once; the husk stays in the queue until a thread comes by."""
        self.abandoned = True  # before the inputs go: the thread reads them in the opposite order
        self.inputs = ()

    def settle(self, outputs: Sequence[Array], error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(outputs)
        else:
            self.future.set_exception(error)


class Executor:
    """Runs requests on the instances of one model. Methods are for the event loop's thread."""

    def __init__(
        self,
        runner: Runner,
        *,
        queue_size: int,
        instances: int = 1,
        observer: ModelObserver | None = None,
        name: str = "model",
    ) -> None:
        """Starts the threads.

        Args:
            runner: the first instance; the others are its clones.
            queue_size: how many requests may wait while every instance is busy.
            instances: how many requests run at the same time.
            observer: told of every request.
            name: for the threads.
        """
        self._limit = queue_size + instances
        self._admitted = 0
        self._observer: ModelObserver = observer or Unobserved()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        zeros = [np.zeros(spec.shape, spec.dtype) for spec in runner.signature.inputs]
        runners = [runner, *(runner.clone() for _ in range(instances - 1))]
        self._warm_ups = [_Job(zeros, Unobserved()) for _ in runners]
        self._threads = [
            threading.Thread(target=self._work, args=work, name=f"octet-infer-{name}-{index}", daemon=True)
            for index, work in enumerate(zip(runners, self._warm_ups, strict=True))
        ]
        for thread in self._threads:
            thread.start()

    def check_room(self) -> None:
        """Raises `QueueFull` if `permit` would; takes no place."""
        if self._admitted >= self._limit:
            raise QueueFull(hint="try again later, or from fewer connections")

    def permit(self) -> Permit:
        """A place in the queue, which is given back at the end of a `with` block.

        Raises:
            QueueFull: every place is taken.
        """
        self.check_room()
        return Permit(self)

    async def warm(self) -> None:
        """Waits until every instance has run once, on zeros and on its own thread.

        Page faults and the runtime's thread pools, which are per thread, are then paid for. Raises what the run raised.
        """
        await asyncio.gather(*(job.future for job in self._warm_ups))

    def close(self) -> None:
        """Lets the threads end when they have run what is queued; does not wait for them."""
        for _ in self._threads:
            self._queue.put(None)

    async def closed(self) -> None:
        """Waits for the threads, after `close`."""
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _submit(self, inputs: Sequence[Array]) -> _Job:
        job = _Job(inputs, self._observer)
        self._observer.queued()
        self._queue.put(job)
        return job

    def _work(self, runner: Runner, warm_up: _Job) -> None:
        _execute(runner, warm_up)
        while (job := self._queue.get()) is not None:
            _execute(runner, job)
            del job  # or the request would live until the next


def _execute(runner: Runner, job: _Job) -> None:
    started_s = perf_counter()
    inputs = job.inputs
    job.observer.dequeued(started_s - job.submitted_s)
    if job.abandoned:
        return
    outputs: Sequence[Array] = ()
    error: Exception | None = None
    try:
        outputs = runner.run(inputs)
    except Exception as exc:  # whatever it is, it is the caller's: this thread has other requests to answer
        error = exc
    with suppress(RuntimeError):  # the event loop was closed, and nobody waits
        job.loop.call_soon_threadsafe(job.settle, outputs, error)
    job.observer.inferred(perf_counter() - started_s, _samples(runner, inputs))


def _samples(runner: Runner, inputs: Sequence[Array]) -> int:
    """How many times the inputs are what the signature says; a batch variant takes several at once."""
    specs = runner.signature.inputs
    one = specs[0].shape[0] if specs and specs[0].shape else 0
    return inputs[0].shape[0] // one if one > 0 and inputs[0].ndim else 1


class Permit:
    """A place in a model's queue, for one request."""

    __slots__ = ("_executor", "_job")

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._job: _Job | None = None
        executor._admitted += 1
        executor._observer.admitted()

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._executor._admitted -= 1
        self._executor._observer.released()

    @property
    def has_to_wait(self) -> bool:
        """Whether there are more requests than instances, so that it pays to watch for the client's leaving."""
        return self._executor._admitted > len(self._executor._threads)

    async def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The model's outputs for `inputs`, both in the signature's order.

        A request whose task is canceled, or that is abandoned, before its turn is never executed.

        Raises:
            Abandoned: `abandon` was called meanwhile.
            InvalidTensor: an input does not fit the signature.
        """
        self._job = self._executor._submit(inputs)
        try:
            return await self._job.future
        except asyncio.CancelledError:
            self._job.abandon()
            raise

    def abandon(self) -> None:
        """Ends `run` with `Abandoned`, if it has not ended yet."""
        if self._job is not None and not self._job.future.done():
            self._job.abandon()
            self._job.settle((), Abandoned())
