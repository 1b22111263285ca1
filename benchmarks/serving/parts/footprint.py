"""Measures the memory of idle servers, and the time from their start to the first response: of `octet serve` with all
models, and of `octet worker serve` with one model.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.artifacts import compile_model
from benchmarks.harness.machine import OtherLoad, free_port, memory_of, terminate, tree
from benchmarks.harness.predictions import binary_request, infer_path
from benchmarks.harness.turns import alternate
from benchmarks.serving.bench import Bench
from benchmarks.serving.contestants import Served
from benchmarks.serving.records import Footprint
from service.runtime import load_model

_GIVE_UP_S, _PAUSE_S, _REST_S = 60.0, 0.002, 5.0
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class _Question:
    """A prediction that is requested repeatedly until it is answered."""

    path: str
    body: bytes
    headers: Mapping[str, str]

    def is_answered(self, port: int) -> bool:
        connection = http.client.HTTPConnection(_HOST, port, timeout=_GIVE_UP_S)
        try:
            connection.request("POST", self.path, self.body, dict(self.headers))
            return connection.getresponse().status == http.client.OK
        finally:
            connection.close()


@dataclass
class _Started:
    """A server, from the start of its command, on all cores that this process may use."""

    arguments: Sequence[str]
    data_dir: Path
    log: Path
    port: int = field(default_factory=free_port)

    def __enter__(self) -> _Started:
        command = [sys.executable, "-m", "service.cli", *self.arguments, "--port", str(self.port), "--grpc-port", "0"]
        with self.log.open("ab") as output:
            self.began_s = time.perf_counter()
            self.process = subprocess.Popen(
                command, env=os.environ | {"OCTET_DATA_DIR": str(self.data_dir)}, stdout=output, stderr=output
            )
        return self

    def __exit__(self, *_: object) -> None:
        terminate(self.process, _GIVE_UP_S)

    def answered_after_s(self, question: _Question) -> float:
        """Returns the time from the command to the first correct response. Raises RuntimeError if it ends, or takes too
        long.
        """
        while True:
            with suppress(OSError, http.client.HTTPException):
                if question.is_answered(self.port):
                    return time.perf_counter() - self.began_s
            if self.process.poll() is not None or time.perf_counter() - self.began_s > _GIVE_UP_S:
                raise RuntimeError(f"no answer:\n{self.log.read_text()}")
            time.sleep(_PAUSE_S)

    def pss_mib(self) -> dict[str, float]:
        """Returns the memory by process name; processes of one name are added up."""
        found: dict[str, float] = {}
        for pid in tree(self.process.pid):
            with suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                name = "supervisor" if pid == self.process.pid and name.startswith("python") else name
                found[name] = round(found.get(name, 0.0) + memory_of([pid]).pss_mib, 1)
        return found


def measure(bench: Bench, served: Served, cores: Sequence[int]) -> None:
    """
    Args:
        cores: the server's cores; they affect the start, but not the memory.
    """
    folder = bench.scratch / f"{served.name}.octet"
    compile_model(served.path(bench.home), folder)
    (spec,) = load_model(folder).signature.inputs
    question = _Question(infer_path(served.name), *binary_request([spec.name], [bench.images[served.name]]))
    ways = {"octet serve": ["serve"], "octet worker serve": ["worker", "serve", f"{served.name}={folder}"]}
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        for number, title in alternate(ways, bench.rules.rounds):
            other = OtherLoad([])
            with _Started(ways[title], bench.data_dir, bench.scratch / "footprint.log") as server:
                answered_s = server.answered_after_s(question)
                time.sleep(_REST_S)
                pss_mib = server.pss_mib()
            bench.record(Footprint(served.name, title, number, round(answered_s, 3), pss_mib, other.cpus()))
            print(f"{title}: answers after {answered_s:.2f} s, takes {sum(pss_mib.values()):.1f} MiB", flush=True)
    finally:
        os.sched_setaffinity(0, before)
