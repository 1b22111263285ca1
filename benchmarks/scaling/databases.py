"""Measures how many builds per second workers claim and finish, on PostgreSQL beside SQLite:

    python -m benchmarks.scaling.databases                               # two workers, 1,000 builds, three rounds
    python -m benchmarks.scaling.databases --workers 4 --queued 20000    # 20,000 further builds wait in the queue
    python -m benchmarks.scaling.databases --postgresql postgresql://…   # an existing server, and an empty database

The workers are processes, which do nothing between a claim and its end. Both engines write to the same disk, and
respond when the data is on it. PostgreSQL's own pgbench runs the same statements on the same server. Without
`--postgresql`, a server is started from the system's packages.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.scaling.pgbench import builds_per_s
from service.core.builds.build import BuildInputs
from service.core.digest import digest_of
from service.db import BuildStore, Database
from tests.support import postgres

_LEASE_S = 600.0
ARTIFACT = digest_of(b"artifact")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--builds", type=int, default=1000, help="builds that are claimed and finished in each round")
    parser.add_argument("--queued", type=int, default=0, help="further queued builds, which are not claimed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgresql", metavar="URL")
    parser.add_argument("--work", nargs=2, metavar=("URL", "BUILDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        _work(arguments.work[0], int(arguments.work[1]))
        return
    with urls_of(arguments.postgresql) as urls:
        for number in range(1, arguments.rounds + 1):
            for name, url in urls.items():
                rate = _round(url, f"round {number}", arguments.builds, arguments.queued, arguments.workers)
                print(f"round {number}  {name:10}  {rate:7.0f} builds/s", flush=True)
            peer = _peer(urls["PostgreSQL"], f"peer {number}", arguments.builds, arguments.workers)
            if peer is not None:
                print(f"round {number}  pgbench     {peer:7.0f} builds/s", flush=True)


@contextmanager
def urls_of(postgresql: str | None) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="octet-databases-") as folder:
        sqlite = f"sqlite:///{Path(folder) / 'octet.sqlite3'}"
        if postgresql is not None:
            yield {"PostgreSQL": postgresql, "SQLite": sqlite}
            return
        with postgres.running("-c", "fsync=on") as server:
            yield {"PostgreSQL": postgres.database_url(str(server.folder)), "SQLite": sqlite}


@contextmanager
def _queued(url: str, name: str, count: int) -> Iterator[None]:
    """Queues builds. Ends those that are left afterwards, because the next round must begin with an empty queue."""
    with closing(Database(url)) as database:
        database.migrate()
        builds = BuildStore(database)
        for number in range(count):
            builds.submit(build_inputs(f"{name} {number}"), "model", 1)
        yield
        while (left := builds.claim("sweeper", _LEASE_S)) is not None:
            builds.finish(left, artifact=ARTIFACT)


def _round(url: str, name: str, count: int, queued: int, workers: int) -> float:
    """Returns the builds per second, from when all workers are ready until the last has ended."""
    command = [sys.executable, "-m", "benchmarks.scaling.databases", "--work", url, str(count // workers)]
    with _queued(url, name, count + queued):
        started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(workers)]
        for worker in started:
            assert worker.stdout is not None
            worker.stdout.readline()
        begin_s = time.perf_counter()
        for worker in started:
            assert worker.stdin is not None
            worker.stdin.write(b"\n")
            worker.stdin.flush()
        for worker in started:
            worker.communicate()
            assert worker.returncode == 0
        took_s = time.perf_counter() - begin_s
    return count // workers * workers / took_s


def _peer(url: str, name: str, count: int, workers: int) -> float | None:
    """Returns the rate of the same statements by pgbench, without Python."""
    with _queued(url, name, count):
        return builds_per_s(url, count, workers)


def _work(url: str, count: int) -> None:
    builds = BuildStore(Database(url))
    builds.any_to_claim(_LEASE_S)  # opens the connection
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(count):
        claim = builds.claim("worker", _LEASE_S)
        assert claim is not None
        builds.finish(claim, artifact=ARTIFACT)


def build_inputs(source: str) -> BuildInputs:
    return BuildInputs(digest_of(source.encode()), "x86-64-v3", "tflite", {"tvm": "0"}, {})


if __name__ == "__main__":
    main()
