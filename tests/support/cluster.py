"""A cluster of real processes on one machine: an API, compile workers and workers, each in a separate folder."""

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
_OCTET = ("-m", "service.cli")
# Code that runs Octet as if the CPU could run no target: it can build for targets, but cannot verify the artifacts.
_BLIND = """
import platform
from service.cli.app import app
from service.compiler.build import answers, steps
from service.core.target import Host

steps.detect_host = answers.detect_host = lambda: Host(platform.machine(), frozenset())
app()
"""


class Cluster:
    """The processes of a cluster.

    Attributes:
        settings: the common settings of all processes.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], stack: ExitStack) -> None:
        self._folder, self.settings, self._stack = folder, {"cluster_key": KEY, **settings}, stack
        self._count = 0

    def start(self, *command: str, **settings: Any) -> Served:
        """Starts a server with the role that the command defines, and returns when it is ready. It is killed with the
        cluster.
        """
        process = self._process([*command, "--port", "0"], settings)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the process ended while it started"
        ready = json.loads(line)
        assert "url" in ready, ready
        served = Served(process, ready["url"], ready["grpc"])
        self._stack.enter_context(served.client)
        return served

    def compile_worker(self, *targets: str, can_verify: bool = True) -> subprocess.Popen[str]:
        """Starts a compile worker. If `can_verify` is false, it behaves as if its CPU could run no target."""
        program = _OCTET if can_verify else ("-c", _BLIND)
        process = self._process(["compile-worker", "--targets", ",".join(targets)], {}, program)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    def _process(
        self, command: Sequence[str], settings: dict[str, Any], program: Sequence[str] = _OCTET
    ) -> subprocess.Popen[str]:
        self._count += 1
        folder = self._folder / f"{command[0]}-{self._count}"
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, *program, *command, "--verbose", "--json", "--data-dir", str(folder)],
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
    """Returns the live workers that answer predictions."""
    found: list[dict[str, Any]] = api.client.get("/api/v1/workers").json()["workers"]
    return [each for each in found if each["kind"] == "inference"]


def has_pools(api: Served, *pools: str) -> None:
    """Waits until each of these pools has a live worker."""
    eventually(lambda: {each["pool"] for each in workers(api)} >= set(pools), WORK_TIMEOUT_S)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
