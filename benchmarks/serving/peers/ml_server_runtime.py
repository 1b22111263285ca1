"""The runtime that MLServer loads, with a handler for the raw body. `ml_server` chooses the model."""

from __future__ import annotations

import json
import os

from fastapi import Request, Response
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.handlers import custom_handler  # type: ignore[import-not-found]

from benchmarks.serving.peers.runtimes import load


class Raw(MLModel):  # type: ignore[misc]
    async def load(self) -> bool:
        self._answer = load(*json.loads(os.environ["OCTET_BENCH_MODEL"]))
        return True

    @custom_handler(rest_path="/predict")  # type: ignore[untyped-decorator]
    async def answer(self, request: Request) -> Response:
        return Response(self._answer(await request.body()), media_type="application/octet-stream")
