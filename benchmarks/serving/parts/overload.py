"""Measures the overload of a server: its goodput, the latency of its refusals, and its recovery."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.harness.machine import OtherLoad, memory
from benchmarks.serving import hosts
from benchmarks.serving.bench import Bench
from benchmarks.serving.clients.flood import Flood
from benchmarks.serving.clients.load import REFUSED, Answer, Outcome, Phase, percentile
from benchmarks.serving.contestants import Served
from benchmarks.serving.records import Overload

_CAPACITY_S = 4.0
_CALM_SHARE, _CALM_S = 0.3, 4.0  # share of the capacity before the overload and after it, and duration
_AFTER_S = 10.0
_IN_A_ROW = 10
_NORMAL_TIMES = 2.0  # a probe is answered in time within this multiple of the calm phase's 99th percentile
_SAMPLE_S = 1.0
_LATEST_S = 5e-3


def measure(bench: Bench, served: Served, factor: float, seconds: float, cores: Sequence[int]) -> None:
    """
    Args:
        cores: the cores of the generator's processes.
    """
    flood = Flood(cores, bench.scratch)
    with hosts.octet(bench.data_dir, served.name, bench.images[served.name], bench.server_core, bench.scratch) as (
        host,
        _,
    ):
        run = flood.run
        capacity = run(bench.closed(host, _CAPACITY_S)).per_s
        calm = Phase(_CALM_SHARE * capacity, _CALM_S)
        normal_s = _NORMAL_TIMES * percentile(run(host.load(calm)).latencies_ms(), 99) / 1e3
        phases = Phase(factor * capacity, seconds), Phase(_CALM_SHARE * capacity, _AFTER_S)
        other, before = OtherLoad([host.pid]), memory(host.pid).rss_mib
        with _sampling(host.pid) as samples:
            outcome = run(replace(host.load(*phases), latest_s=_LATEST_S))
        rss_mib = [before, max([before, *samples]), memory(host.pid).rss_mib]
        beside = Outcome([it for it in outcome.answers if it.due_s < seconds], seconds)
        probes = sorted((it for it in outcome.answers if it.due_s >= seconds), key=lambda it: it.due_s)
        served_ms, refused_ms = beside.latencies_ms(), beside.latencies_ms(REFUSED)
        overload = Overload(
            model=served.name,
            encoding=host.encoding,
            factor=factor,
            seconds=seconds,
            capacity_per_s=capacity,
            goodput_per_s=sum(it.due_s + it.latency_s <= seconds for it in beside.good) / seconds,
            statuses=outcome.statuses,
            wrong=outcome.wrong,
            served_p50_ms=percentile(served_ms, 50),
            served_p99_ms=percentile(served_ms, 99),
            refused_p50_ms=percentile(refused_ms, 50),
            refused_p99_ms=percentile(refused_ms, 99),
            recovery_s=recovery_s(probes, normal_s) - seconds,
            rss_mib=rss_mib,
            other_cpus=other.cpus(),
            unsent=outcome.unsent,
        )
    bench.record(overload)
    print(
        f"  at {overload.sent_factor:.1f} times the capacity: goodput {overload.goodput_per_s:.1f} of {capacity:.1f}"
        f" /s, refusals' p99 {overload.refused_p99_ms:.1f} ms,"
        f" recovered after {overload.recovery_s:.2f} s, RSS {rss_mib} MiB, {overload.statuses}",
        flush=True,
    )


def recovery_s(probes: Sequence[Answer], normal_s: float) -> float:
    """Returns the due time of the first of ten successive requests answered within `normal_s`; infinity if there is
    none.
    """
    are_normal = [it.is_good and it.latency_s <= normal_s for it in probes]
    for index in range(len(probes) - _IN_A_ROW + 1):
        if all(are_normal[index : index + _IN_A_ROW]):
            return probes[index].due_s
    return float("inf")


@contextmanager
def _sampling(pid: int) -> Iterator[list[float]]:
    """Samples the resident set of a server in MiB, each second."""
    samples: list[float] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(_SAMPLE_S):
            samples.append(memory(pid).rss_mib)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
