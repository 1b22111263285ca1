"""Measures the cost of sending the routing table from a router's control plane to its data plane: the whole table when
the two connect, and then each change.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from service.workers.data_plane import orders
from service.workers.data_plane.frames import frame
from service.workers.data_plane.table import Table
from tests.support import routed

_CHANGES = 500


@dataclass(frozen=True)
class Told:
    """The cost of one order.

    Attributes:
        bytes: the size of its frame.
        making_s: processor time of the control plane, which turns rows into the frame.
        reading_s: processor time of the data plane's event loop, which reads the frame.
    """

    bytes: int
    making_s: float
    reading_s: float


def measure(workers: int = 1_000, models: int = 100_000) -> dict[str, Told]:
    """Measures each order. Each model is in the memory of one worker, and each name was requested."""
    table = Table()
    rows = _rows(workers, models)
    table.set_workers(rows)
    table.set_models(orders.Servable(f"model-{each}", "", ("x86-64-v4+vnni", "x86-64-v3")) for each in range(models))

    def load(turn: int) -> dict[str, Any]:
        at = turn % workers
        rows[at] = replace(rows[at], loaded=(*rows[at].loaded, (f"another-{turn}", "")))
        table.set_workers(rows)  # the control plane does this after it has read the table of workers
        return table.changes()

    def leave(turn: int) -> dict[str, Any]:
        rows.pop()
        table.set_workers(rows)
        return table.changes()

    def name(turn: int) -> dict[str, Any]:
        table.put_model(orders.Servable(f"new-{turn}", "", ("x86-64-v3",)))
        return table.changes()

    with TemporaryDirectory() as folder, routed.cluster(Path(folder)) as router:
        return {
            "whole": _measure_order(router, lambda turn: table.whole(), 3),
            "a worker has loaded a model": _measure_order(router, load, _CHANGES),
            "a name": _measure_order(router, name, _CHANGES),
            "a worker has left": _measure_order(router, leave, min(_CHANGES, workers // 2)),
        }


def _rows(workers: int, models: int) -> list[orders.Worker]:
    """Returns workers that are not ready, because connections to ready ones would be requested."""
    each = models // workers
    return [
        orders.Worker(
            f"worker-{at:04}-0123456789",
            "x86-64-v4+vnni",
            16,
            "draining",
            tuple((f"model-{model}", "") for model in range(at * each, (at + 1) * each)),
        )
        for at in range(workers)
    ]


def _measure_order(router: routed.Cluster, order: Callable[[int], dict[str, Any]], turns: int) -> Told:
    making_s, size, began_s = 0.0, 0, _event_loop_s(router)
    for turn in range(turns):
        before_s = time.process_time()
        message = order(turn)
        size += len(frame(message))
        making_s += time.process_time() - before_s
        router.say(message)
    router.gather()
    return Told(size // turns, making_s / turns, (_event_loop_s(router) - began_s) / turns)


def _event_loop_s(router: routed.Cluster) -> float:
    """Returns the processor time of the data plane's main thread so far."""
    pid = router.router.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) * 1e-9
