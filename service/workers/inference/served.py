"""A model that is loaded here, and the requests that hold on to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from service.core.metadata import NOTHING, ModelMetadata
from service.core.queueing import Scheduling
from service.core.signature import ModelSignature
from service.native import ModelQueue
from service.workers.inference.executor import Executor
from service.workers.inference.observer import Identity, Observer
from service.workers.inference.permit import Permit
from service.workers.inference.runner import Array
from service.workers.inference.terms import USUAL, Terms
from service.workers.inference.variants import Variants


class Served:
    """A loaded model. It outlives its replacement for as long as a request holds it. For the event loop's thread.

    Attributes:
        identity: what is loaded.
        signature: its inputs and outputs.
        batches: the numbers of samples that a request may have besides that of the signature.
        scheduling: the rules of its queue.
        metadata: labels and preprocessing, as the registry last found them.
        asked_s: when a request last asked for it here, by the monotonic clock.
    """

    def __init__(self, identity: Identity, variants: Variants, *, scheduling: Scheduling, observer: Observer) -> None:
        self.identity, self.scheduling = identity, scheduling
        self.signature: ModelSignature = variants.signature
        self.metadata: ModelMetadata = NOTHING
        self.batches = range(2, max((batch for batch, _ in identity.variants), default=1) + 1)
        self._observer = observer.loaded(identity)
        name = f"{identity.model}-{identity.version}"
        self._executor = Executor(variants, scheduling=scheduling, observer=self._observer, name=name)
        self.asked_s = monotonic()
        self._holders = 0
        self._retired = False
        self._unused = asyncio.Event()  # for good

    async def warm(self) -> None:
        await self._executor.warm()

    @property
    def admitted(self) -> int:
        """Requests that hold a permit. From any thread."""
        return self._executor.admitted

    @property
    def queued(self) -> int:
        """Those of them that wait for a thread. From any thread."""
        return self._executor.queued

    @property
    def is_held(self) -> bool:
        """Whether a request would miss it."""
        return self._holders > 0 or self.admitted > 0

    @property
    def queue(self) -> ModelQueue:
        """Its queue, for requests that do not come this way."""
        return self._executor.queue

    @property
    def used_s(self) -> float:
        """When it was asked for last, by the monotonic clock."""
        return max(self.asked_s, self.queue.used_s())

    def report(self) -> None:
        """Tells the observer what happened in the queue since it was told last."""
        self._executor.report()

    def hold(self) -> None:
        """Keeps the model loaded until `release`."""
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        self._close_if_unused()

    @contextmanager
    def held(self) -> Iterator[None]:
        """`hold` and `release`, around a block."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def retire(self) -> None:
        """Nobody new will come: the model goes when its last holder lets go of it."""
        if not self._retired:
            self._retired = True
            self._observer.unloaded()
            self._close_if_unused()

    async def closed(self) -> None:
        """Waits until the model is gone, after `retire`."""
        await self._unused.wait()
        await self._executor.closed()

    def permit(self, timeout_s: float | None = None) -> Permit:
        """A place in the queue, of a request whose call has to begin within `timeout_s`. Raises `QueueFull`."""
        return self._executor.permit(timeout_s)

    async def infer(self, inputs: Sequence[Array], terms: Terms = USUAL) -> Sequence[Array]:
        """The outputs for `inputs`, both in the signature's order. Raises `QueueFull`, and as `Permit.run`."""
        with self.permit() as permit:
            return await permit.run(inputs, terms)

    def _close_if_unused(self) -> None:
        if self._retired and not self._holders:
            self._unused.set()
            self._executor.close()
