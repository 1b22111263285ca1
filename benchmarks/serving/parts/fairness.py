"""Measures the latency of a light model, alone and beside a heavy one with many clients, on the same server."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from benchmarks.harness.machine import OtherLoad
from benchmarks.harness.server import serving
from benchmarks.serving import hosts
from benchmarks.serving.bench import CLOSED_CONNECTIONS, Bench
from benchmarks.serving.clients.flood import ANYWHERE, Flood
from benchmarks.serving.clients.load import Load, Phase, percentile
from benchmarks.serving.contestants import Served
from benchmarks.serving.records import Fairness

_RATE = 200.0  # the rate of requests to the light model


def measure(bench: Bench, light: Served, heavy: Served, cores: Sequence[int], seconds: float) -> None:
    """
    Args:
        cores: the server's cores. The clients sleep until they are answered, and share these cores.
        seconds: duration of each of the four phases.
    """
    with serving(bench.data_dir, cores, bench.scratch / "fairness.log", "--no-compile") as server:
        pair = [hosts.host_of(server, it.name, bench.images[it.name], bench.scratch) for it in (light, heavy)]
        other = OtherLoad([server.pid])
        flood = Flood([ANYWHERE], bench.scratch)
        rate = replace(pair[0].load(Phase(_RATE, seconds)), polls=False)
        call_ms = percentile(flood.run(_closed(bench, pair[1], 1, seconds)).latencies_ms(), 99)
        crowd = _closed(bench, pair[1], CLOSED_CONNECTIONS, seconds)
        heavy_alone, alone = flood.run(crowd), flood.run(rate)
        with ThreadPoolExecutor(1) as pool:
            # The clients of the heavy model begin first and end last.
            longer = replace(crowd, seconds=seconds + 2 * crowd.warm_up_s)
            crowded = pool.submit(Flood([ANYWHERE], bench.scratch / "crowd").run, longer)
            beside = flood.run(rate)
            heavy_beside = crowded.result()
    record = Fairness(
        light=light.name,
        heavy=heavy.name,
        cores=len(cores),
        rate=_RATE,
        connections=CLOSED_CONNECTIONS,
        seconds=seconds,
        call_ms=call_ms,
        alone_ms=alone.latencies_ms(),
        beside_ms=beside.latencies_ms(),
        heavy_alone_per_s=heavy_alone.per_s,
        heavy_beside_per_s=heavy_beside.per_s,
        statuses=beside.statuses,
        wrong=beside.wrong + heavy_beside.wrong,
        other_cpus=other.cpus(),
    )
    bench.record(record)
    p50_ms, p99_ms = (percentile(record.beside_ms, percent) for percent in (50, 99))
    print(
        f"  beside p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms (alone p99 {percentile(record.alone_ms, 99):.2f} ms);"
        f" one heavy call {call_ms:.2f} ms; heavy {record.heavy_alone_per_s:.1f} to {record.heavy_beside_per_s:.1f} /s,"
        f" {record.statuses}; other CPUs {record.other_cpus:.2f}",
        flush=True,
    )


def _closed(bench: Bench, host: hosts.Host, connections: int, seconds: float) -> Load:
    return replace(bench.closed(host, seconds), connections=connections, polls=False)
