"""A plain FastAPI application under uvicorn, with uvloop and httptools, and no access log.

It computes in the event loop: on one core a thread would only add switching.
"""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI, Request, Response

from benchmarks.serving.peers.arguments import arguments
from benchmarks.serving.peers.runtimes import load


def main() -> None:
    given = arguments()
    predict = load(given.runtime, given.model)
    app = FastAPI()

    async def answer(request: Request) -> Response:
        return Response(predict(await request.body()), media_type="application/octet-stream")

    app.add_route("/predict", answer, methods=["POST"])
    uvicorn.run(app, host="127.0.0.1", port=given.port, loop="uvloop", http="httptools", access_log=False)


if __name__ == "__main__":
    main()
