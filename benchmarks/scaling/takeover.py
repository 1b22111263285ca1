"""Measures the time from the `kill -9` of a worker until another worker claims its build, relative to the lease:

    python -m benchmarks.scaling.takeover                         # three kills, the default lease of 30 s: four minutes
    python -m benchmarks.scaling.takeover --lease 10 --kills 1
    python -m benchmarks.scaling.takeover --postgresql postgresql://…  # an existing server, and an empty database

A worker is killed when it has just claimed a build, so that the whole lease remains. The other worker waits for
notifications and polls like a compile worker. Both engines are measured. No worker can take over before the lease is
over.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time

from benchmarks.scaling.databases import ARTIFACT, build_inputs, urls_of
from service.core.settings import Settings
from service.db import BuildStore, Claim, Database


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lease", type=float, default=Settings.model_fields["lease_s"].default, metavar="S")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--postgresql", metavar="URL")
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        _claim_and_stay(arguments.work, arguments.lease)
        return
    with urls_of(arguments.postgresql) as urls:
        for number in range(1, arguments.kills + 1):
            for name, url in urls.items():
                took_s = _takeover_s(url, f"kill {number}", arguments.lease)
                ratio = took_s / arguments.lease
                print(f"kill {number}  {name:10}  {took_s:6.2f} s after it, {ratio:.2f} of the lease", flush=True)


def _takeover_s(url: str, name: str, lease_s: float) -> float:
    database = Database(url)
    database.migrate()
    builds = BuildStore(database, max_attempts=2)
    build, _ = builds.submit(build_inputs(name), "model", 1)
    command = [sys.executable, "-m", "benchmarks.scaling.takeover", "--work", url, "--lease", str(lease_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.kill()
        begin_s = time.perf_counter()
    claim = _next(builds, lease_s)
    took_s = time.perf_counter() - begin_s
    if claim.build.id != build.id:
        raise RuntimeError(f"another build than the killed worker's was claimed: {claim.build.id}")
    builds.finish(claim, artifact=ARTIFACT)
    database.close()
    return took_s


def _next(builds: BuildStore, lease_s: float) -> Claim:
    """Waits as `CompileWorker.run` does."""
    stop = threading.Event()
    while True:
        count = builds.notifications.count()
        if (claim := builds.claim("the other", lease_s)) is not None:
            return claim
        builds.notifications.wait(count, stop)


def _claim_and_stay(url: str, lease_s: float) -> None:
    claim = BuildStore(Database(url)).claim("the one", lease_s)
    assert claim is not None
    print("claimed", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
