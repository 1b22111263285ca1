"""The data plane on the GPU: predictions of one sample by many clients, over REST and gRPC, each response compared.

    python -m benchmarks.gpu.serving FOLDER DIGEST ANSWERS SECONDS CLIENTS…

FOLDER has the model's artifacts for all batches, which the server fills as requests arrive; DIGEST is the digest of the
artifact for one sample. Clients run on this machine, in separate processes, and send the next request after each
response: latencies are measured by them. Tensors are copied as for any client: from the socket, to the GPU and back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.messages import grpc_request, http_request, outputs_of_grpc, outputs_of_http
from benchmarks.gpu.samples import digest_of_bytes, inputs_of
from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.machine import terminate
from benchmarks.harness.wire import ask
from benchmarks.serving.clients.load import Load, percentile
from service.cache import OciLayout
from service.core.artifacts.artifact import ArtifactConfig
from service.core.digest import parse_digest

_HOST, _MOST_PROCESSES, _START_S = "127.0.0.1", 6, 60


def main() -> None:
    folder, name, answers, seconds, *counts = sys.argv[1:]
    layout = OciLayout.open(Path(folder))
    described = layout.manifest(parse_digest(name)).config.digest
    signature = ArtifactConfig.from_json(json.loads(layout.blobs.read(described))).signature
    inputs = inputs_of(signature)
    with _server(folder) as ports, tempfile.TemporaryDirectory() as scratch:
        request, expected = Path(scratch, "request"), Path(scratch, "expected")
        ways: dict[str, Callable[[], tuple[bytes, bytes, list[bytes]]]] = {
            "REST": lambda: _first_http(ports["http"], http_request(ports["http"], signature.inputs, inputs)),
            "gRPC": lambda: _first_grpc(ports["grpc"], grpc_request(signature.inputs, inputs)),
        }
        for protocol, ask_first in ways.items():
            if protocol == "gRPC" and find_spec("grpc") is None:
                print("gRPC: not measured, this Python has no grpcio", file=sys.stderr)
                continue
            message, answer, outputs = ask_first()
            right = digest_of_bytes(outputs) == answers
            request.write_bytes(message)
            expected.write_bytes(answer)
            for clients in map(int, counts):
                port = ports["http" if protocol == "REST" else "grpc"]
                found = _loaded(protocol, Load(_HOST, port, str(request), str(expected)), clients, float(seconds))
                print(json.dumps({"protocol": protocol, "right": right} | found), flush=True)


@contextmanager
def _server(folder: str) -> Iterator[dict[str, int]]:
    site = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(CHECKOUT / "site"))))
    command = [sys.executable, "-m", "benchmarks.gpu.serve", folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": site})
    assert process.stdout
    try:
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the server ended with {process.wait()}")
        yield json.loads(line)
    finally:
        terminate(process, _START_S)


def _first_http(port: int, request: bytes) -> tuple[bytes, bytes, list[bytes]]:
    answer = ask(_HOST, port, request, _START_S)
    if answer.status != 200:
        raise SystemExit(f"REST answers {answer.status}: {answer.body[:300]!r}")
    return request, answer.body, outputs_of_http(answer.body)


def _first_grpc(port: int, request: bytes) -> tuple[bytes, bytes, list[bytes]]:
    from benchmarks.gpu.grpc_load import call

    answer = call(_HOST, port, request, _START_S)
    return request, answer, outputs_of_grpc(answer)


def _loaded(protocol: str, load: Load, clients: int, seconds: float) -> dict[str, Any]:
    """Runs clients in processes that each have a share of them."""
    cores = sorted(os.sched_getaffinity(0))
    count = min(clients, _MOST_PROCESSES, max(1, len(cores) // 3))
    module = "benchmarks.serving.clients.generator" if protocol == "REST" else "benchmarks.gpu.grpc_load"
    warm_up_s = min(1.0, seconds / 2)
    orders = [
        asdict(Load(**{**asdict(load), "connections": clients // count + (index < clients % count)}))
        | {"seconds": seconds, "warm_up_s": warm_up_s, "polls": False, "phases": []}
        for index in range(count)
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for core in cores[-count:]
    ]
    try:
        for process, order in zip(processes, orders, strict=True):
            assert process.stdin
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        return _summed([_read_outcome(process) for process in processes], clients)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _read_outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout
    line = process.stdout.readline()
    outcome = json.loads(line) if line else {"error": "the clients' process ended"}
    if "error" in outcome:
        raise SystemExit(str(outcome["error"]))
    return dict(outcome)


def _summed(outcomes: Sequence[dict[str, Any]], clients: int) -> dict[str, Any]:
    """Adds up rates; latencies are over all responses together."""
    answers = [answer for each in outcomes for answer in each["answers"]]
    good = sorted(1e3 * latency_s for _, latency_s, status, right in answers if status == 200 and right)
    wrong = sum(status == 200 and not right for _, _, status, right in answers)
    counts = [sum(status == 200 and right for _, _, status, right in each["answers"]) for each in outcomes]
    per_s = sum(count / each["elapsed_s"] for count, each in zip(counts, outcomes, strict=True) if each["elapsed_s"])
    if not good:
        raise SystemExit(
            f"{clients} clients received no correct response in time: {len(answers)} responses, {wrong} of them wrong"
        )
    figures = {"per_s": per_s, "p50_ms": percentile(good, 50), "p99_ms": percentile(good, 99)}
    return {"clients": clients, **figures, "wrong": wrong, "others": len(answers) - len(good) - wrong}


if __name__ == "__main__":
    main()
