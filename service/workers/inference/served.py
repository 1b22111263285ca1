"""A model that is loaded here, and the requests that hold on to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from service.core.signature import ModelSignature
from service.workers.inference.executor import Executor, Permit
from service.workers.inference.observer import Identity, Observer
from service.workers.inference.runner import Array, Runner


class Served:
    """A loaded model. It outlives its replacement for as long as a request holds it. For the event loop's thread.

    Attributes:
        identity: what is loaded.
        signature: its inputs and outputs.
        batches: the batch sizes besides that of the signature.
    """

    def __init__(self, identity: Identity, runner: Runner, *, queue_size: int, observer: Observer) -> None:
        self.identity = identity
        self.signature: ModelSignature = runner.signature
        self.batches = tuple(batch for batch, _ in identity.variants)
        self._observer = observer.loaded(identity)
        name = f"{identity.model}-{identity.version}"
        self._executor = Executor(runner, queue_size=queue_size, observer=self._observer, name=name)
        self._holders = 0
        self._retired = False

    async def warm(self) -> None:
        await self._executor.warm()

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
        await self._executor.closed()

    def check_room(self) -> None:
        """Raises `QueueFull` if `permit` would; takes no place."""
        self._executor.check_room()

    def permit(self) -> Permit:
        """A place in the queue. Raises `QueueFull`."""
        return self._executor.permit()

    async def infer(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for `inputs`, both in the signature's order. Raises `QueueFull`, `InvalidTensor`."""
        with self.permit() as permit:
            return await permit.run(inputs)

    def _close_if_unused(self) -> None:
        if self._retired and not self._holders:
            self._executor.close()
