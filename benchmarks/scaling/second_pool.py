"""Measures the time from a push to the first correct prediction of a second pool:

    python -m benchmarks.scaling.second_pool                   # MobileNetV2, three pushes of each type: some minutes
    python -m benchmarks.scaling.second_pool model.tflite

Runs a cluster of an API, a compile worker and one worker for each of two targets. The model is pushed for the first
target. Then the same file is pushed for the second target, whose kernels must be compiled. After that, files are pushed
that differ in a trailing byte: they count as other models with the same kernels, which their builds find in the cache.
The time ends when the pool's worker answers a prediction: it has then fetched the artifact from the bucket, verified it
and loaded it.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.harness.home import SHARED
from benchmarks.scaling.own_cluster import own_cluster
from service.core.target import detect_host
from tests.support.cluster import has_pools
from tests.support.serving import RUNS_HERE, Served

_MODEL = SHARED / "models" / "tflite" / "mobilenet_v2_1.0_224_quant.tflite"
_ASK_EVERY_S = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=_MODEL)
    parser.add_argument("--pushes", type=int, default=3)
    arguments = parser.parse_args()
    here = detect_host().target.name
    content = arguments.model.read_bytes()
    with own_cluster(heartbeat_s=2.0) as made:
        api = made.start("api")
        made.compile_worker(here, RUNS_HERE)
        first = made.start("worker", "--target", here, "--pool", "first")
        second = made.start("worker", "--target", RUNS_HERE, "--pool", "second")
        has_pools(api, "first", "second")
        print(f"{here}, first push: {_ready_s(api, first, content, here):.2f} s")
        print(f"{RUNS_HERE}, kernels to be compiled: {_ready_s(api, second, content, RUNS_HERE):.2f} s")
        warm = []
        for number in range(arguments.pushes):
            warm.append(_ready_s(api, second, content + bytes([number]), RUNS_HERE))
            print(f"{RUNS_HERE}, kernels found: {warm[-1]:.2f} s", flush=True)
        print(f"median with warm kernels: {median(warm):.2f} s")


def _ready_s(api: Served, worker: Served, content: bytes, target: str) -> float:
    """Returns the seconds from the push to the first prediction of `worker`."""
    begin_s = time.perf_counter()
    name = f"model-{begin_s:.0f}-{target}".replace("+", "-")
    response = api.client.put("/api/v1/models", params={"name": name, "target": target}, content=content)
    response.raise_for_status()
    build: dict[str, Any] = api.ended(response.json()["id"])
    if build["state"] != "succeeded":
        raise RuntimeError(build)
    while _answer(worker, name) is None:
        time.sleep(_ASK_EVERY_S)
    return time.perf_counter() - begin_s


def _answer(worker: Served, model: str) -> bytes | None:
    """Returns the outputs of `worker` for zeros; None while it cannot answer."""
    described = worker.client.get(f"/v2/models/{model}")
    if described.status_code != httpx.codes.OK:
        return None
    [of] = described.json()["inputs"]
    zeros = [0] * math.prod(of["shape"])
    given = {"inputs": [{"name": of["name"], "shape": of["shape"], "datatype": of["datatype"], "data": zeros}]}
    answer = worker.client.post(f"/v2/models/{model}/infer", json=given)
    return answer.content if answer.status_code == httpx.codes.OK else None


if __name__ == "__main__":
    main()
