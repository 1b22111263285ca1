"""From the bytes of a predict request to the model's outputs: the part of the road that all protocols share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from service.api.v2.inputs import Picture
from service.api.v2.request import InferRequest
from service.api.v2.telemetry import ModelRequests
from service.api.v2.tensors import Array
from service.runtime import image
from service.workers.inference import Permit, Served

Run = Callable[[Permit, Sequence[Array]], Awaitable[Sequence[Array]]]


class Predictor:
    """Answers requests that were read."""

    def __init__(self) -> None:
        cores = len(os.sched_getaffinity(0))
        self._decoders = ThreadPoolExecutor(cores, "octet-decode")  # bounds the memory that pictures take meanwhile

    async def predict(
        self, served: Served, requests: ModelRequests, parse: Callable[[], InferRequest], run: Run = Permit.run
    ) -> tuple[InferRequest, Sequence[Array]]:
        """A request and its outputs, in the signature's order.

        Args:
            served: the model, held by the caller.
            requests: told of what is done.
            parse: reads the request, once there is a place for it.
            run: `Permit.run`, or that and a watch for the client's leaving.

        Raises:
            QueueFull: too many requests wait for the model.
            OctetError: the request is not well formed, or does not fit the model.
        """
        began_s = perf_counter()
        with served.permit() as permit:
            request = parse()
            inputs = await self._decode(request.inputs)
            requests.prepared(perf_counter() - began_s)
            return request, await run(permit, inputs)

    async def _decode(self, inputs: Sequence[Array | Picture]) -> Sequence[Array]:
        loop = asyncio.get_running_loop()
        return [
            await loop.run_in_executor(self._decoders, image.decode, each.data, each.spec)
            if isinstance(each, Picture)
            else each
            for each in inputs
        ]
