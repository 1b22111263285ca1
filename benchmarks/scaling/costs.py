"""Measures the costs of the cluster's steps: in the database, on a PostgreSQL of this machine, and in a router's
processes:

    python -m benchmarks.scaling.costs

One client repeats each step. Its processor time is that of the server's process for that client, which limits a server
with a given number of cores; it hardly depends on the machine's other load.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from benchmarks.harness.machine import used_s
from benchmarks.harness.turns import time_calls
from benchmarks.scaling import table
from service.core.builds.build import BuildInputs
from service.core.cluster.worker import Worker, WorkerKind
from service.core.digest import digest_of
from service.db import AliasStore, BuildStore, Database, ModelStore, WorkerStore
from service.workers.inference.tables import Tables
from tests.support import postgres

_TARGET, _WORKERS, _MODELS, _SECONDS = "x86-64-v3", 1_000, 1_000, 3.0


@dataclass(frozen=True)
class Costs:
    """Processor time of the database, in seconds.

    Attributes:
        look_s: a worker resolves one name.
        beat_s: a worker writes its heartbeat.
        list_s: a router reads the table of all workers.
    """

    look_s: float
    beat_s: float
    list_s: float


def measure() -> Costs:
    with postgres.running("-c", "fsync=on") as server:
        database = Database(postgres.database_url(str(server.folder)), connections=1)
        database.migrate()
        tables, workers = _filled(database), WorkerStore(database)
        now = datetime.now(UTC)
        known = [Worker(f"w{each}", WorkerKind.INFERENCE, "host", each, _TARGET, now, now) for each in range(_WORKERS)]
        for worker in known:
            workers.beat(worker)
        costs = Costs(
            _processor_time(database, lambda turn: _look(tables, f"model{turn % _MODELS}")),
            _processor_time(database, lambda turn: workers.beat(known[turn % _WORKERS])),
            _processor_time(database, lambda turn: workers.list(1e6)),
        )
        database.close()
        return costs


def _filled(database: Database) -> Tables:
    builds, models = BuildStore(database), ModelStore(database)
    for each in range(_MODELS):
        name, source = f"model{each}", digest_of(str(each).encode())
        models.push(name, source, "tflite", 1)
        builds.submit(BuildInputs(source, _TARGET, "tflite", {"tvm": "0"}, {}), name, 1)
        claim = builds.claim("worker", 600.0)
        assert claim is not None
        builds.finish(claim, artifact=digest_of(name.encode()))
    return Tables(builds, models, AliasStore(database), (_TARGET,))


def _look(tables: Tables, model: str) -> None:
    """Runs the registry's queries for a name."""
    plan = tables.plan(model, None)
    tables.versions(model, None)
    ((_, identity),) = tables.candidates(model, plan.version, lambda artifact: True)
    tables.models.metadata(model, identity.version)


def _processor_time(database: Database, step: Callable[[int], object]) -> float:
    """Returns the processor time per step of the server's process for the one connection."""
    with database.read() as connection:
        pid = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
    numbers, began_s = itertools.count(), used_s([pid])
    turns = len(time_calls(lambda: step(next(numbers)), _SECONDS))
    return (used_s([pid]) - began_s) / turns


if __name__ == "__main__":
    told = {what: asdict(each) for what, each in table.measure().items()}
    print(json.dumps({"database": asdict(measure()), "routing table": told}, indent=2))
