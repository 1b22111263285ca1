"""`python -m tests.support.cluster_load ADDRESS MODEL PAUSE_S` starts clients that send pictures of digits until
standard input ends.

Half of the clients use HTTP, half gRPC; $KEY is the API key. The program prints one line when every client has received
a response. A line of the input begins a phase of that name; the first phase is `steady`. At the end, the program prints
an object with all phases: the number of requests by outcome, and the latencies of the correct responses. A request is
`lost` if its connection broke, `refused` if the status was not 200, and `not accepted` if nothing listened.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import numpy as np
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from tests.support.deployment import ROOT

_CLIENTS = 6
_TIMEOUT_S = 60.0
_PICTURES = [(ROOT / "examples" / "digits" / f"{digit}.png").read_bytes() for digit in range(10)]
_MOST_PROBLEMS = 8
_AFTER_A_PROBLEM_S = 0.1  # Pause after a failed request; without it, failures would dominate the counts.
_SLOWEST = 5  # Number of slowest responses that are printed for a phase.


@dataclass
class Phase:
    """The outcomes of the requests that clients began during one phase.

    Attributes:
        counts: the number of requests by outcome.
        answers: for each correct response, its latency in seconds, the time from the start of the phase to the start of
            the request in seconds, and the protocol.
    """

    counts: Counter[str] = field(default_factory=Counter)
    answers: list[tuple[float, float, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def to_json(self) -> dict[str, Any]:
        seconds = [took_s for took_s, *_ in self.answers]
        percentiles = np.percentile(seconds, [50, 99, 100]) if seconds else [0.0] * 3
        named = zip(("p50_ms", "p99_ms", "longest_ms"), percentiles, strict=True)
        figures = {name: round(1000 * float(value), 1) for name, value in named}
        longest = sorted(self.answers, reverse=True)[:_SLOWEST]
        slowest = [f"{took_s:.2f} s at {at_s:.1f} s by {protocol}" for took_s, at_s, protocol in longest]
        return {"counts": self.counts, "problems": self.problems, **figures, "slowest": slowest}


class _Problem(Exception):
    """A failed request. The arguments are the outcome and the error message."""


def main() -> None:
    address, model, pause_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    phases = {"steady": Phase()}
    current, over, lock = ["steady"], threading.Event(), threading.Lock()
    began = [threading.Event() for _ in range(_CLIENTS)]

    def go_on(client: int) -> None:
        ask, digit = (_http if client % 2 else _grpc)(address, model), client
        protocol = "HTTP" if client % 2 else "gRPC"
        while not over.wait(pause_s):
            digit, phase, start_s, problem = (digit + 1) % 10, phases[current[0]], time.monotonic(), ""
            try:
                what = "right" if ask(digit) == digit else "wrong"
            except _Problem as error:
                what, problem = error.args
            took_s = time.monotonic() - start_s
            with lock:
                phase.counts[what] += 1
                if what == "right":
                    phase.answers.append((took_s, start_s - phase.began_s, protocol))
                    began[client].set()
                elif len(phase.problems) < _MOST_PROBLEMS:
                    phase.problems.append(f"{what} after {took_s:.3f} s: {problem[:300]}")
            if problem:
                over.wait(_AFTER_A_PROBLEM_S)

    threads = [threading.Thread(target=go_on, args=(client,)) for client in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for event in began:
        event.wait()
    with lock:
        phases["steady"] = Phase()  # the first requests also load the model
    print("ready", flush=True)
    for line in sys.stdin:
        phases[line.strip()] = Phase()
        current[0] = line.strip()
    over.set()
    for thread in threads:
        thread.join()
    print(json.dumps({name: phase.to_json() for name, phase in phases.items()}), flush=True)


def _http(address: str, model: str) -> Callable[[int], int]:
    headers = {"content-type": "image/png", "authorization": f"Bearer {os.environ['KEY']}"}
    client = httpx.Client(timeout=_TIMEOUT_S, trust_env=False, headers=headers)
    return partial(_ask_http, client, f"http://{address}:8080/v2/models/{model}/infer")


def _ask_http(client: httpx.Client, url: str, digit: int) -> int:
    try:
        response = client.post(url, content=_PICTURES[digit])
    except httpx.ConnectError as error:
        raise _Problem("not accepted", str(error)) from error
    except httpx.TransportError as error:
        raise _Problem("lost", repr(error)) from error
    if response.status_code != 200:
        raise _Problem("refused", f"{response.status_code} {response.text}")
    return int(np.argmax(response.json()["outputs"][0]["data"]))


def _grpc(address: str, model: str) -> Callable[[int], int]:
    client = triton.InferenceServerClient(f"{address}:8081", channel_args=[("grpc.max_reconnect_backoff_ms", 1000)])
    headers = {"authorization": f"Bearer {os.environ['KEY']}"}
    signature = client.get_model_metadata(model, headers=headers, client_timeout=_TIMEOUT_S).inputs[0].name
    return partial(_ask_grpc, client, headers, model, signature)


def _ask_grpc(client: Any, headers: dict[str, str], model: str, signature: str, digit: int) -> int:
    picture = triton.InferInput(signature, [1], "BYTES")
    picture.set_data_from_numpy(np.array([_PICTURES[digit]], dtype=object))
    try:
        answer = client.infer(model, [picture], headers=headers, client_timeout=_TIMEOUT_S)
    except InferenceServerException as error:
        raise _Problem(_fate(error), str(error)) from error
    return int(answer.as_numpy(answer.get_response().outputs[0].name).argmax())


def _fate(error: InferenceServerException) -> str:
    """Returns the outcome of a failed request, derived from the error message.

    grpcio has a single status, UNAVAILABLE, for broken connections, for failed connections, and for refusals.
    """
    text = str(error)
    if "failed to connect" in text:
        return "not accepted"
    if any(words in text for words in ("Socket closed", "Connection reset", "recvmsg", "End of TCP stream", "GOAWAY")):
        return "lost"
    return "refused"


if __name__ == "__main__":
    main()
