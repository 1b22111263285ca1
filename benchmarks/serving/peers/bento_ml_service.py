"""The service that `bentoml serve` loads. `bento_ml` chooses the model."""

from __future__ import annotations

import json
import os

import bentoml  # type: ignore[import-not-found]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.serving.peers.runtimes import load

raw = Starlette()


@bentoml.service(workers=1, traffic={"timeout": 60}, logging={"access": {"enabled": False}}, metrics={"enabled": False})
@bentoml.asgi_app(raw)
class Raw:
    def __init__(self) -> None:
        predict = load(*json.loads(os.environ["OCTET_BENCH_MODEL"]))

        async def answer(request: Request) -> Response:
            return Response(predict(await request.body()), media_type="application/octet-stream")

        raw.add_route("/predict", answer, methods=["POST"])
