"""A cluster of real processes on one machine: an API, compile workers and workers, each with a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.serving import Served, environment
from tests.support.waiting import WORK_TIMEOUT_S, eventually

KEY = "a-secret-of-this-cluster"


class Cluster:
    """What was started of it.

    Attributes:
        settings: of all its processes.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], stack: ExitStack) -> None:
        self._folder, self.settings, self._stack = folder, {"cluster_key": KEY, **settings}, stack
        self._count = 0

    def start(self, *command: str, **settings: Any) -> Served:
        """A server in the role that the command names, when it has started; killed in the end, if it still runs."""
        process = self._process([*command, "--port", "0"], settings)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "it ended while it started"
        said = json.loads(line)
        assert "url" in said, said
        served = Served(process, said["url"], said["grpc"])
        self._stack.enter_context(served.client)
        return served

    def compile_worker(self, *targets: str) -> subprocess.Popen[str]:
        """One that takes builds."""
        process = self._process(["compile-worker", "--targets", ",".join(targets)], {})
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    def _process(self, command: Sequence[str], settings: dict[str, Any]) -> subprocess.Popen[str]:
        self._count += 1
        folder = self._folder / f"{command[0]}-{self._count}"
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", *command, "--verbose", "--json", "--data-dir", str(folder)],
            env=environment(**{**self.settings, **settings}),
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        self._stack.callback(_end, process)
        return process


@contextmanager
def cluster(folder: Path, **settings: Any) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(folder, settings, stack)


def workers(api: Served) -> list[dict[str, Any]]:
    """Those that answer predictions and gave a sign of life lately."""
    found: list[dict[str, Any]] = api.client.get("/api/v1/workers").json()["workers"]
    return [each for each in found if each["kind"] == "inference"]


def has_pools(api: Served, *pools: str) -> None:
    """Returns when a worker of each of these pools is there."""
    eventually(lambda: {each["pool"] for each in workers(api)} >= set(pools), WORK_TIMEOUT_S)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
