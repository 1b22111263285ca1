"""Triton by nvidia-pytriton: NVIDIA's server, and its Python back end, which calls this process.

It uses the same v2 REST as Octet, so it gets the same body. Triton's Python back end brings a libpython of its own
version, so the interpreter must be the system's (`benchmarks.setup_peers`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pytriton.model_config import ModelConfig, Tensor  # type: ignore[import-not-found]
from pytriton.triton import Triton, TritonConfig  # type: ignore[import-not-found]

from benchmarks.harness.machine import free_port
from benchmarks.serving.peers.arguments import arguments
from benchmarks.serving.peers.runtimes import IMAGE, load

MODEL, INPUT = "image", "input"


def main() -> None:
    given = arguments()
    predict = load(given.runtime, given.model)

    def answer(requests: Any) -> list[dict[str, Any]]:
        return [{"scores": np.frombuffer(predict(request[INPUT].tobytes()), np.uint8)} for request in requests]

    ports = {"http_port": given.port, "grpc_port": free_port(), "metrics_port": free_port()}
    config = TritonConfig(http_address="127.0.0.1", log_verbose=0, **ports)
    with Triton(config=config, workspace=f"{given.scratch}/workspace") as triton:
        triton.bind(
            MODEL,
            answer,
            [Tensor(name=INPUT, dtype=np.uint8, shape=IMAGE)],
            [Tensor(name="scores", dtype=np.uint8, shape=(-1,))],
            config=ModelConfig(batching=False),
        )
        triton.serve()


if __name__ == "__main__":
    main()
