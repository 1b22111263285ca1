"""From the bytes of a predict request to the model's outputs: the part that all protocols share."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from service.api.oip.inputs import Picture
from service.api.oip.request import InferRequest
from service.api.oip.tensors import Array
from service.api.oip.timeline import Timeline
from service.core.metadata import ModelMetadata
from service.workers.inference import Permit, Terms

Run = Callable[[Permit, Sequence[Array], Terms], Awaitable[Sequence[Array]]]


class Predictor:
    """Answers requests that were read."""

    def __init__(self) -> None:
        cores = len(os.sched_getaffinity(0))
        self._decoders = ThreadPoolExecutor(cores, "octet-decode")  # bounds the memory that pictures take meanwhile
        started = threading.Barrier(cores)
        for _ in range(cores):  # now: where memory is short, a thread may not start
            self._decoders.submit(started.wait)

    async def predict(
        self,
        permit: Permit,
        timeline: Timeline,
        parse: Callable[[], InferRequest],
        metadata: ModelMetadata,
        run: Run = Permit.run,
    ) -> tuple[InferRequest, Sequence[Array]]:
        """A request and its outputs, in the signature's order.

        Args:
            permit: its place, which the caller gives back.
            timeline: where it is noted when what was done.
            parse: reads the request.
            metadata: of the model, by which pictures become its input.
            run: `Permit.run`, or that and a watch for the client's leaving.

        Raises:
            OctetError: the request is not well formed, does not fit the model, or was not answered in time.
        """
        request = parse()
        inputs = await self._decode(request.inputs, metadata)
        timeline.prepared_s = monotonic()
        outputs = await run(permit, inputs, request.terms)
        timeline.ran_s, timeline.stages = monotonic(), permit.stages
        return request, outputs

    async def _decode(self, inputs: Sequence[Array | Picture], metadata: ModelMetadata) -> Sequence[Array]:
        loop = asyncio.get_running_loop()
        return [
            await loop.run_in_executor(self._decoders, _decode, each, metadata) if isinstance(each, Picture) else each
            for each in inputs
        ]


def _decode(picture: Picture, metadata: ModelMetadata) -> Array:
    from service.runtime.image import decode  # Pillow, 3 MB with its libraries: most models are sent tensors

    return decode(picture.data, picture.spec, metadata)
