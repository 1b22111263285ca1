"""The parts that all benchmarks of a run share: the cores, the generator, the folders, and the record of results."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TextIO

from benchmarks.harness.contestant import ContestantProcess
from benchmarks.harness.frameworks import Job
from benchmarks.harness.home import CHECKOUT, Home
from benchmarks.harness.records import write
from benchmarks.serving.clients.load import Answer, Load, Outcome
from benchmarks.serving.hosts import Host
from benchmarks.serving.records import Failure, Record
from service.core.models.arrays import Array
from service.core.settings import load_settings

CLOSED_CONNECTIONS = 8


@dataclass(frozen=True)
class Rules:
    """The settings of a run.

    Attributes:
        seconds: duration of a turn under load; turns of a slow model are longer.
        share: the load of the open loop, as a share of a contestant's own capacity.
        start_limit_s: time limit for the peers of a model to start.
    """

    rounds: int = 3
    seconds: float = 1.5
    share: float = 0.7
    start_limit_s: float = 90.0


class Generator:
    """The process that generates the load."""

    def __init__(self, core: int) -> None:
        command = [sys.executable, "-m", "benchmarks.serving.clients.generator", str(core)]
        self._process = subprocess.Popen(
            command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, load: Load) -> Outcome:
        """Generates a load. Raises RuntimeError if that fails."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asdict(load)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the generator ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"the generator: {answer['error']}")
        return Outcome([Answer(*row) for row in answer["answers"]], answer["elapsed_s"])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Bench:
    """The common parts of a run's benchmarks.

    Attributes:
        data_dir: data folder of the Octet servers, which contains the models.
        digests: the digest of each model's artifact.
        images: one image per model, [1, 224, 224, 3] of one byte.
    """

    home: Home
    rules: Rules
    server_core: int
    client_core: int
    generator: Generator
    data_dir: Path
    scratch: Path
    output: TextIO
    digests: dict[str, str] = field(default_factory=dict)
    images: dict[str, Array] = field(default_factory=dict)

    def bare(self, model: str) -> ContestantProcess:
        """Starts the process of the bare call on the server's core: `Model.run` on the values of `images`, which it
        generates, too.
        """
        store = load_settings({"data_dir": self.data_dir}).store_dir
        job = Job("octet", str(store), 1, [self.server_core], 1, {"digest": self.digests[model]})
        return ContestantProcess(Path(sys.executable), job, self.scratch / "bare.log")

    def record(self, record: Record) -> None:
        write(self.output, record)

    @contextmanager
    def surviving(self, part: str) -> Iterator[None]:
        """Runs the `with` block. If the block raises an exception, records it and lets the run continue."""
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            print(f"{part}: FAILED, {error}", flush=True)
            self.record(Failure(part, f"{type(error).__name__}: {error}"))

    def closed(self, host: Host, seconds: float) -> Load:
        return replace(host.load(), connections=CLOSED_CONNECTIONS, seconds=seconds)
