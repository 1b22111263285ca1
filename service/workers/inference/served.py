"""A model that is loaded in the data plane, and who holds on to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from service.core.metadata import NOTHING, ModelMetadata
from service.core.signature import ModelSignature
from service.workers.inference.identity import Identity


class Served:
    """A loaded model. It outlives its replacement for as long as somebody holds it. For the event loop's thread.

    Attributes:
        key: by which the data plane knows it.
        identity: what is loaded.
        signature: its inputs and outputs.
        metadata: labels and preprocessing, as the registry last found them.
        admitted: requests that hold a place with it, when the data plane was last asked.
        queued: those of them that wait for a thread.
        is_lost: whether the data plane that had it is gone.
    """

    def __init__(self, key: int, identity: Identity, signature: ModelSignature) -> None:
        self.key, self.identity, self.signature = key, identity, signature
        self.metadata: ModelMetadata = NOTHING
        self.admitted = self.queued = 0
        self.used_s = monotonic()  # when it was asked for last
        self.is_lost = False
        self._holders = 0
        self._retired = False
        self._unused = asyncio.Event()  # for good

    @property
    def is_held(self) -> bool:
        """Whether somebody would miss it."""
        return self._holders > 0 or self.admitted > 0

    def told(self, admitted: int, queued: int, used_s: float) -> None:
        """What the data plane says of it."""
        self.admitted, self.queued = admitted, queued
        self.used_s = max(self.used_s, used_s)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the model loaded until the block ends."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            self._end_if_unused()

    def retire(self) -> None:
        """Nobody new will come: the model goes when its last holder lets go of it."""
        self._retired = True
        self._end_if_unused()

    async def unused(self) -> None:
        """Waits until nobody here holds it, after `retire`."""
        await self._unused.wait()

    def _end_if_unused(self) -> None:
        if self._retired and not self._holders:
            self._unused.set()
