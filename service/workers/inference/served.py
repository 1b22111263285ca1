"""A model that is loaded in the data plane, and the number of its holders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.models.signature import ModelSignature
from service.workers.inference.identity import Identity


class Served:
    """A loaded model. After it was replaced, it stays loaded until its last holder has released it. Only for the event
    loop's thread.

    Attributes:
        key: identifies the model in the data plane.
        identity: the model, version and artifacts that are loaded.
        signature: the model's inputs and outputs.
        metadata: the labels and the preprocessing that the registry read last.
        tokenizer: the file of the tokenizer in `metadata`, if it has one and the file is not lost.
        admitted: the number of the model's requests that occupy a slot, according to the data plane's last report.
        queued: how many of these requests wait for a thread.
        is_lost: true if the data plane in which it was loaded has ended.
    """

    def __init__(self, key: int, identity: Identity, signature: ModelSignature) -> None:
        self.key, self.identity, self.signature = key, identity, signature
        self.metadata: ModelMetadata = NOTHING
        self.tokenizer: Path | None = None
        self.admitted = self.queued = 0
        self.used_s = monotonic()  # the time of the last request
        self.is_lost = False
        self._holders = 0
        self._retired = False
        self._unused = asyncio.Event()  # set when the model is retired and has no holders; never cleared

    @property
    def is_held(self) -> bool:
        """Returns true if a holder or an admitted request needs the model."""
        return self._holders > 0 or self.admitted > 0

    def update_use(self, admitted: int, queued: int, used_s: float) -> None:
        """Stores the figures of the data plane's last report."""
        self.admitted, self.queued = admitted, queued
        self.used_s = max(self.used_s, used_s)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps the model loaded until the block ends."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            self._end_if_unused()

    def retire(self) -> None:
        """Marks the model as replaced: it gets no new holders, and is unloaded when its last holder has released it."""
        self._retired = True
        self._end_if_unused()

    async def unused(self) -> None:
        """Waits until the model was retired and nothing in this process holds it any more."""
        await self._unused.wait()

    def _end_if_unused(self) -> None:
        if self._retired and not self._holders:
            self._unused.set()
