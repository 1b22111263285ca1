"""All that a server is asked in its life, for as long as wanted: predictions, pushes, reloads and bad requests."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import httpx
import numpy as np

from benchmarks.places import CHECKOUT
from benchmarks.server import Server, serving
from benchmarks.serving.bench import Bench, Generator
from benchmarks.serving.contestants import Served
from benchmarks.serving.hosts import HOST, Host, host_of
from benchmarks.serving.load import Load, Outcome, Phase
from benchmarks.serving.processes import OtherLoad, memory
from benchmarks.serving.records import Soak

_SHARE = 0.5  # of the time of the server's core, among the models
_PUSH_EVERY_S, _RELOAD_EVERY_S, _BAD_EVERY_S, _SAMPLE_EVERY_S = 5.0, 1.0, 0.2, 2.0
_PUSHED = CHECKOUT / "examples" / "digits_int8.tflite"
_NAMES = 8  # that pushes go to in turn
_ANSWER_S = 60.0


@dataclass
class _Asker:
    """Asks something again and again until it is told to stop, and counts the answers by status."""

    every_s: float
    requests: Iterator[httpx.Request]
    client: httpx.Client
    statuses: Counter[str] = field(default_factory=Counter)

    def run(self, over: threading.Event) -> None:
        while not over.wait(self.every_s):
            try:
                status = str(self.client.send(next(self.requests)).status_code)
            except httpx.TransportError as error:
                status = type(error).__name__
            self.statuses[status] += 1


def measure(bench: Bench, models: Sequence[Served], minutes: float) -> None:
    """The server has its core for all of it: its compile worker, too."""
    log = bench.scratch / "soak.log"
    with ExitStack() as stack:
        server = stack.enter_context(serving(bench.data_dir, [bench.server_core], log))
        found = [host_of(server, served.name, bench.images[served.name], bench.scratch) for served in models]
        generators = [stack.enter_context(closing(Generator(bench.client_core))) for _ in found]
        rates = [_SHARE / len(found) * bench.generator.run(bench.closed(host, 3.0)).per_s for host in found]
        client = stack.enter_context(httpx.Client(base_url=server.url, trust_env=False, timeout=_ANSWER_S))
        askers = _askers(client, [served.name for served in models])
        other = OtherLoad([server.pid, *(it.pid for it in generators)])
        outcomes, rss_mib = _run(bench, server, found, rates, generators, askers, minutes)
    slope, error = slope_of(rss_mib[len(rss_mib) // 2 :], _SAMPLE_EVERY_S / 60)
    predictions = sum((Counter(outcome.statuses) for outcome in outcomes), Counter())
    others = {name: dict(asker.statuses) for name, asker in askers.items()}
    soak = Soak(
        models=[served.name for served in models],
        minutes=minutes,
        rate=sum(rates),
        predictions=dict(predictions),
        wrong=sum(outcome.wrong for outcome in outcomes),
        others=others,
        unplanned_5xx=sum(n for counts in (predictions, *others.values()) for at, n in counts.items() if at[0] == "5"),
        every_s=_SAMPLE_EVERY_S,
        rss_mib=rss_mib,
        slope_mib_per_min=slope,
        slope_error=error,
        other_cpus=other.cpus(),
    )
    bench.record(soak)
    print(
        f"  {soak.predictions} predictions, {soak.wrong} wrong, {others}, RSS {rss_mib[:1]} to {rss_mib[-1:]} MiB,"
        f" slope {slope:.2f} ± {error:.2f} MiB/min",
        flush=True,
    )


def _run(
    bench: Bench,
    server: Server,
    found: Sequence[Host],
    rates: Sequence[float],
    generators: Sequence[Generator],
    askers: dict[str, _Asker],
    minutes: float,
) -> tuple[list[Outcome], list[float]]:
    outcomes: list[Outcome] = []
    over = threading.Event()

    def load(host: Host, rate: float, generator: Generator) -> None:
        phases = [Phase(rate, 60 * minutes)]
        outcomes.append(generator.run(Load(HOST, host.port, str(host.request), str(host.answer), phases=phases)))

    loads = [threading.Thread(target=load, args=arguments) for arguments in zip(found, rates, generators, strict=True)]
    asking = [threading.Thread(target=asker.run, args=(over,)) for asker in askers.values()]
    for thread in (*loads, *asking):
        thread.start()
    rss_mib = []
    while any(thread.is_alive() for thread in loads):
        rss_mib.append(memory(server.pid).rss_mib)
        time.sleep(_SAMPLE_EVERY_S)
    over.set()
    for thread in (*loads, *asking):
        thread.join()
    return outcomes, rss_mib


def _askers(client: httpx.Client, served: Sequence[str]) -> dict[str, _Asker]:
    names = itertools.cycle(range(_NAMES))
    model = _PUSHED.read_bytes()
    pushes = (
        client.build_request("PUT", "/api/v1/models", params={"name": f"soak-{at}", "target": "host"}, content=model)
        for at in names
    )
    reloads = (
        client.build_request("POST", f"/v2/repository/models/{name}/load", json={}) for name in itertools.cycle(served)
    )
    return {
        "push": _Asker(_PUSH_EVERY_S, pushes, client),
        "reload": _Asker(_RELOAD_EVERY_S, reloads, client),
        "bad": _Asker(_BAD_EVERY_S, itertools.cycle(_bad(client, served[0])), client),
    }


def _bad(client: httpx.Client, served: str) -> list[httpx.Request]:
    """No model, no JSON, no such input, too few bytes, no model file: 4xx each."""
    infer = f"/v2/models/{served}/infer"
    return [
        client.build_request("POST", "/v2/models/nobody/infer", json={"inputs": []}),
        client.build_request("POST", infer, content=b"{"),
        client.build_request("POST", infer, json={"inputs": [{"name": "?", "shape": [1], "datatype": "UINT8"}]}),
        client.build_request("POST", infer, content=b"123", headers={"Inference-Header-Content-Length": "0"}),
        client.build_request("PUT", "/api/v1/models", params={"name": "nothing", "target": "host"}, content=b"nothing"),
    ]


def slope_of(values: Sequence[float], step: float) -> tuple[float, float]:
    """The slope of the least-squares line through values `step` apart, and its standard error; NaN below three."""
    if len(values) < 3:
        return math.nan, math.nan
    x = step * np.arange(len(values))
    centered = x - x.mean()
    slope = float(centered @ np.asarray(values) / (centered @ centered))
    residuals = np.asarray(values) - np.mean(values) - slope * centered
    variance = float(residuals @ residuals) / (len(values) - 2)
    return slope, math.sqrt(variance / float(centered @ centered))
