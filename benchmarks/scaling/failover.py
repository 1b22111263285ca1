"""Measures how long a request waits when its worker fails: in a cluster of processes, with its own PostgreSQL and
bucket.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.harness.machine import tree
from benchmarks.scaling.own_cluster import own_cluster
from tests.support.cluster import workers
from tests.support.serving import RUNS_HERE, Served
from tests.support.waiting import WORK_TIMEOUT_S, eventually

PICTURE = (Path(__file__).parents[2] / "examples" / "digits" / "7.png").read_bytes()
_CLIENTS, _BEATS = 4, 5  # number of clients; requests are observed for so many heartbeats after the failure


@dataclass(frozen=True)
class Failover:
    """The requests after a worker has failed.

    Attributes:
        requests: number of requests.
        failed: number of failed ones.
        longest_s: the longest time of a request.
        usual_s: the longest time before the failure.
    """

    how: str
    requests: int
    failed: int
    longest_s: float
    usual_s: float


def measure(heartbeat_s: float) -> list[Failover]:
    """Measures a worker out of three that is killed, and then one that hangs with its connections open."""
    with _started(heartbeat_s) as (api, members):
        return [_failing(api, members.pop(), how, number, heartbeat_s) for how, number in _FAILURES]


_FAILURES = (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP))


@contextmanager
def _started(heartbeat_s: float) -> Iterator[tuple[Served, list[Served]]]:
    with own_cluster(heartbeat_s) as made:
        api = made.start("api")
        made.compile_worker(RUNS_HERE)
        members = [made.start("worker", "--target", RUNS_HERE) for _ in range(3)]
        eventually(lambda: len(workers(api)) == len(members), WORK_TIMEOUT_S)
        if (build := api.ended(api.push(target=RUNS_HERE)["id"]))["state"] != "succeeded":
            raise RuntimeError(build)
        load = api.client.post("/v2/repository/models/digits/load", json={})
        load.raise_for_status()
        eventually(lambda: all(each["loaded"] for each in workers(api)), WORK_TIMEOUT_S)
        yield api, members


def _failing(api: Served, worker: Served, how: str, number: signal.Signals, heartbeat_s: float) -> Failover:
    done, times = threading.Event(), list[tuple[float, float, bool]]()

    def ask() -> None:
        with httpx.Client(base_url=api.url, timeout=WORK_TIMEOUT_S) as client:
            while not done.is_set():
                began_s = time.monotonic()
                try:
                    headers = {"content-type": "image/png"}
                    is_good = (
                        client.post("/v2/models/digits/infer", content=PICTURE, headers=headers).status_code == 200
                    )
                except httpx.TransportError:
                    is_good = False
                times.append((began_s, time.monotonic() - began_s, is_good))

    threads = [threading.Thread(target=ask) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(2 * heartbeat_s)
    pids = tree(worker.process.pid)
    failed_s = time.monotonic()
    for pid in pids:
        os.kill(pid, number)
    time.sleep(_BEATS * heartbeat_s)
    done.set()
    for thread in threads:
        thread.join()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    before = [took_s for began_s, took_s, _ in times if began_s + took_s < failed_s]
    after = [(took_s, is_good) for began_s, took_s, is_good in times if began_s + took_s >= failed_s]
    return Failover(
        how, len(after), sum(not is_good for _, is_good in after), max(took_s for took_s, _ in after), max(before)
    )
