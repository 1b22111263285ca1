"""Ray Serve: one replica and its proxy, on a new Ray cluster with one CPU, without dashboard and usage report."""

from __future__ import annotations

import os
import signal

from benchmarks.serving.peers.arguments import arguments
from benchmarks.serving.peers.runtimes import load

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_health_check_failure_threshold"] = "1000"  # noqa: SIM112 - it is stopped between its turns

import ray  # type: ignore[import-not-found]
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


class Raw:
    def __init__(self, runtime: str, model: str) -> None:
        self._predict = load(runtime, model)

    async def __call__(self, request: Request) -> Response:
        return Response(self._predict(await request.body()), media_type="application/octet-stream")


def main() -> None:
    given = arguments()
    ray.init(
        num_cpus=1, include_dashboard=False, object_store_memory=100 << 20, _temp_dir=given.scratch, log_to_driver=False
    )
    serve.start(
        http_options={"host": "127.0.0.1", "port": given.port},
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )
    deployment = serve.deployment(Raw, num_replicas=1, max_ongoing_requests=64, ray_actor_options={"num_cpus": 0})
    serve.run(deployment.bind(given.runtime, given.model), name="raw", route_prefix="/predict")
    signal.pause()


if __name__ == "__main__":
    main()
