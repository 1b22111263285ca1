"""Runs the soak from beginning to end, and records its results."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import httpx

from benchmarks.harness.machine import OtherLoad
from benchmarks.harness.server import Server, serving
from benchmarks.serving.bench import Bench, Generator
from benchmarks.serving.clients.load import Outcome, Phase
from benchmarks.serving.contestants import Served
from benchmarks.serving.hosts import Host, host_of
from benchmarks.serving.records import Soak
from benchmarks.serving.soak.actors import Actor, Problems, running
from benchmarks.serving.soak.hostile import hostile_clients
from benchmarks.serving.soak.lifecycle import Versions, changers
from benchmarks.serving.soak.predicting import Question, predictors
from benchmarks.serving.soak.watching import Watch, growth_of
from service.cli.client import Client

_SHARE = 0.3  # share of the server's core that predictions of all models take; the other clients take as much again
_CAPACITY_S = 3.0
_SLICE_S = 10.0  # interval at which a generator reports its responses
_LOOK_EVERY_S, _PROGRESS_EVERY_S = 2.0, 60.0
_ANSWER_S = 120.0
_MESSAGE_BYTES = 1 << 30


@dataclass
class _Stream:
    """Binary predictions of one model, with constant arrivals, by a separate generator."""

    model: str
    host: Host
    rate: float
    generator: Generator
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: int = 0

    def run(self, until_s: float, problems: Problems) -> None:
        while (left_s := until_s - time.monotonic()) > 1.0:
            load = self.host.load(Phase(self.rate, min(_SLICE_S, left_s)))
            self._count(self.generator.run(replace(load, patience_s=_ANSWER_S, polls=False)), problems)

    def _count(self, outcome: Outcome, problems: Problems) -> None:
        self.statuses.update(outcome.statuses)
        self.wrong += outcome.wrong
        odd = {status: count for status, count in outcome.statuses.items() if status not in ("200", "429")}
        if odd or outcome.wrong:
            problems.add(f"{self.model}, binary: {odd}, {outcome.wrong} wrong")


def measure(bench: Bench, models: Sequence[Served], minutes: float) -> None:
    """Runs the soak. The server, including its compile worker, uses one core. Its log is stored beside the results."""
    log = Path(bench.output.name).with_suffix(".soak.log")
    with ExitStack() as stack:
        server = stack.enter_context(serving(bench.data_dir, [bench.server_core], log))
        client = stack.enter_context(httpx.Client(base_url=server.url, trust_env=False, timeout=_ANSWER_S))
        limit = [("grpc.max_receive_message_length", _MESSAGE_BYTES)]
        channel = stack.enter_context(grpc.insecure_channel(f"{server.host}:{server.grpc_port}", limit))
        questions = [_question(bench, server, served.name) for served in models]
        streams = [_stream(bench, server, served.name, len(models), stack) for served in models]
        versions = Versions(client, int(time.time() * 1e3))
        versions.start()
        actors = [
            *predictors(client, channel, questions),
            *changers(client, versions, [served.name for served in models]),
            *hostile_clients(client, channel, server, questions[0]),
        ]
        other = OtherLoad([server.pid, *(stream.generator.pid for stream in streams)])
        watch, problems = Watch(server, client), Problems()
        _run(streams, actors, watch, problems, 60 * minutes)
        soak = _summary(models, minutes, streams, actors, watch, problems, other.cpus())
    bench.record(soak)
    _show(soak)
    print(f"  the server's log: {log}", flush=True)


def _run(streams: Sequence[_Stream], actors: Sequence[Actor], watch: Watch, problems: Problems, seconds: float) -> None:
    begun_s = time.monotonic()
    loads = [threading.Thread(target=stream.run, args=(begun_s + seconds, problems)) for stream in streams]
    with running(actors, problems):
        for thread in loads:
            thread.start()
        told_s = begun_s
        while any(thread.is_alive() for thread in loads):
            watch.look()
            if time.monotonic() - told_s >= _PROGRESS_EVERY_S:
                told_s = time.monotonic()
                _tell((told_s - begun_s) / 60, streams, actors, watch, problems)
            time.sleep(_LOOK_EVERY_S)
        for thread in loads:
            thread.join()


def _question(bench: Bench, server: Server, model: str) -> Question:
    """Returns a question with the outputs of the bare call, which were computed without a server."""
    with bench.bare(model) as bare:
        scores = bare.outputs()[0]
    with Client(server.url) as client:
        (given,) = client.metadata(model)["inputs"]
    return Question(model, given["name"], given["datatype"], bench.images[model], scores)


def _stream(bench: Bench, server: Server, model: str, among: int, stack: ExitStack) -> _Stream:
    host = host_of(server, model, bench.images[model], bench.scratch)
    per_s = bench.generator.run(bench.closed(host, _CAPACITY_S)).per_s
    return _Stream(model, host, _SHARE / among * per_s, stack.enter_context(closing(Generator(bench.client_core))))


def _summary(
    models: Sequence[Served],
    minutes: float,
    streams: Sequence[_Stream],
    actors: Sequence[Actor],
    watch: Watch,
    problems: Problems,
    other_cpus: float,
) -> Soak:
    predictions = sum((stream.statuses for stream in streams), Counter[str]())
    others = {actor.name: dict(actor.outcomes) for actor in actors}
    counted = [predictions, *others.values()]
    return Soak(
        models=[served.name for served in models],
        minutes=minutes,
        rate=sum(stream.rate for stream in streams),
        predictions=dict(predictions),
        wrong=sum(stream.wrong for stream in streams) + sum(counts.get("wrong", 0) for counts in others.values()),
        others=others,
        unplanned_5xx=sum(n for counts in counted for outcome, n in counts.items() if outcome.startswith("5")),
        problems=problems.count,
        problem_kinds=problems.kinds,
        restarts=watch.restarts,
        every_s=_LOOK_EVERY_S,
        rss_mib=watch.rss_mib,
        mib_per_min={name: growth_of(values, _LOOK_EVERY_S / 60) for name, values in watch.rss_mib.items()},
        other_cpus=other_cpus,
    )


def _tell(minute: float, streams: Sequence[_Stream], actors: Sequence[Actor], watch: Watch, problems: Problems) -> None:
    answers = sum(stream.statuses.total() for stream in streams) + sum(actor.outcomes.total() for actor in actors)
    memory = ", ".join(f"{name} {values[-1]:.1f}" for name, values in watch.rss_mib.items())
    print(f"  {minute:5.1f} min: {answers} answers, {problems.count} problems, MiB: {memory}", flush=True)


def _show(soak: Soak) -> None:
    print(f"  predictions {soak.predictions}, {soak.wrong} wrong, {soak.unplanned_5xx} 5xx, {soak.restarts} restarts")
    for name, outcomes in soak.others.items():
        print(f"  {name}: {outcomes}")
    for name, (slope, low, high) in soak.mib_per_min.items():
        first, last = soak.rss_mib[name][0], soak.rss_mib[name][-1]
        print(f"  {name}: {first:.1f} to {last:.1f} MiB, {slope:+.3f} MiB/min ({low:+.3f} to {high:+.3f})")
    print(f"  {soak.problems} problems, {len(soak.problem_kinds)} kinds of them", flush=True)
