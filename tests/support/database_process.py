"""A process that uses a database: `python -m tests.support.database_process ACTION URL …`. See `child_process`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from service.core.builds.build import LeaseLost, Stage
from service.core.digest import digest_of
from service.core.errors import DatabaseUnreachable
from service.db import BuildStore, Claim, Database, ModelStore
from tests.support.build_inputs import inputs

_LEASE_S = 60.0


def migrate(url: str) -> None:
    database = Database(url)
    print("ready", flush=True)
    sys.stdin.readline()  # all processes begin at the same time
    database.migrate()


def claim_and_hang(url: str, lease_s: str) -> None:
    builds = _opened(url)
    claim = builds.claim("hanging", float(lease_s))
    assert claim is not None
    builds.progress(claim, Stage.CODEGEN, 0.5)
    builds.heartbeat(claim, float(lease_s))
    print(claim.token, flush=True)
    sys.stdin.readline()
    try:
        builds.finish(claim, artifact=digest_of(b"too late"))
    except LeaseLost:
        print("lost", flush=True)


def work(url: str, owner: str) -> None:
    """Finishes builds until none is left, and prints the id of each."""
    builds = _opened(url)
    print("ready", flush=True)
    sys.stdin.readline()
    while (claim := builds.claim(owner, _LEASE_S)) is not None:
        _do(builds, claim, _LEASE_S)
        print(claim.build.id, flush=True)


def work_forever(url: str, owner: str, lease_s: str) -> None:
    """Finishes builds until it is killed."""
    builds = _opened(url)
    print("ready", flush=True)
    while True:
        claim = builds.claim(owner, float(lease_s))
        if claim is None:
            time.sleep(0.01)
        else:
            _do(builds, claim, float(lease_s))


def submit(url: str, model: str, times: str) -> None:
    """Requests the same builds as the other processes, and prints the ids of those that it created."""
    builds = _opened(url)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(times)):
        build, created = builds.submit(inputs(source=str(number)), model, 1)
        if created:
            print(build.id, flush=True)


def push(url: str, times: str) -> None:
    """Pushes the same files as the other processes do, under one name."""
    models = ModelStore(Database(url))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(times)):
        models.push("shared", digest_of(str(number).encode()), "tflite", number)


def _opened(url: str) -> BuildStore:
    return BuildStore(Database(url), max_attempts=1000)


def _do(builds: BuildStore, claim: Claim, lease_s: float) -> None:
    """Makes all calls that a worker makes during a build. If it is killed, its lease on the build expires after
    `lease_s`.
    """
    builds.progress(claim, Stage.IMPORT)
    builds.heartbeat(claim, lease_s)
    with suppress(DatabaseUnreachable):  # whether the line was written is unknown; the process does not retry
        builds.log(claim, f"{claim.owner} builds")
    builds.finish(claim, artifact=digest_of(claim.build.id.encode()))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
