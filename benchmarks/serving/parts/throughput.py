"""Measures all servers of a model in turns on the same core: their rates, latencies and memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.harness.contestant import ContestantProcess
from benchmarks.harness.machine import OtherLoad, memory
from benchmarks.harness.turns import alternate, take_turns
from benchmarks.serving import hosts
from benchmarks.serving.bench import CLOSED_CONNECTIONS, Bench
from benchmarks.serving.clients.load import Load, Outcome, Phase, median, percentile
from benchmarks.serving.contestants import BARE, Peer, Served, peers_for
from benchmarks.serving.hosts import Host, HostFailed, PeerProcess
from benchmarks.serving.records import Entry, Turn

OPEN_LONGER = 5 / 3  # factor for the duration, relative to the closed loop's turns, for the 99th percentile


@dataclass
class _Match:
    """The contestants, and the rate of each in its closed turns."""

    bench: Bench
    served: Served
    playing: dict[str, Host] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    carried: dict[str, list[float]] = field(default_factory=dict)

    def enter(self, title: str, host: Host) -> None:
        host.sleep()
        self.playing[host.name], self.titles[host.name] = host, title

    def fail(self, name: str, title: str, error: Exception) -> None:
        print(f"  {title:32} failed: {error}", flush=True)
        self.bench.record(Entry(self.served.name, name, title, error=str(error)))

    def rounds(self, load_of: Callable[[Host], Load], arrivals: str, bare: ContestantProcess | None = None) -> None:
        """Measures all servers in turn, and `bare`, which gives the core's rate without the cost of serving."""
        for number, name in alternate([*([BARE] if bare else []), *self.playing], self.bench.rules.rounds):
            if bare and name == BARE:
                self._bare(number, bare)
            elif host := self.playing.get(name):
                try:
                    self._turn(number, host, load_of(host), arrivals)
                except (RuntimeError, ZeroDivisionError, IndexError) as error:
                    del self.playing[name]
                    self.fail(name, self.titles[name], error)

    def _turn(self, number: int, host: Host, load: Load, arrivals: str) -> None:
        host.wake()
        other = OtherLoad([host.pid, self.bench.generator.pid])
        try:
            outcome = self.bench.generator.run(load)
        finally:
            other_cpus = other.cpus()
            host.sleep()
        turn = turn_of(self.served.name, host, number, arrivals, load, outcome, other_cpus)
        self.bench.record(turn)
        if not outcome.good:
            raise RuntimeError(f"no correct response: {outcome.statuses}, {outcome.wrong} wrong")
        if arrivals == "closed":
            self.carried.setdefault(host.name, []).append(turn.per_s)

    def _bare(self, number: int, bare: ContestantProcess) -> None:
        timings = take_turns({BARE: bare}, 1, self.bench.rules.seconds * self.served.long)[BARE]
        ordered = sorted(1e3 * duration for duration in timings.rounds[0])
        middle = statistics.median(ordered)
        self.bench.record(
            Turn(
                model=self.served.name,
                contestant=BARE,
                round=number,
                arrivals="calls",
                rate=0.0,
                connections=0,
                encoding="none: the same process",
                elapsed_s=sum(ordered) / 1e3,
                per_s=1e3 / middle,
                p50_ms=middle,
                p99_ms=percentile(ordered, 99),
                statuses={},
                wrong=0,
                other_cpus=round(timings.other_cpus[0], 3),
            )
        )

    def capacity(self, name: str) -> float:
        return median(self.carried.get(name, []))


def turn_of(model: str, host: Host, number: int, arrivals: str, load: Load, outcome: Outcome, other: float) -> Turn:
    ordered = outcome.latencies_ms()
    return Turn(
        model=model,
        contestant=host.name,
        round=number,
        arrivals=arrivals,
        rate=load.phases[0].rate if load.phases else 0.0,
        connections=load.connections,
        encoding=host.encoding,
        elapsed_s=outcome.elapsed_s,
        per_s=outcome.per_s,
        p50_ms=percentile(ordered, 50),
        p99_ms=percentile(ordered, 99),
        statuses=outcome.statuses,
        wrong=outcome.wrong,
        other_cpus=other,
        latencies_ms=[round(latency, 3) for latency in ordered] if load.phases else [],
    )


def measure(bench: Bench, served: Served, only: Sequence[str] | None) -> None:
    """Measures Octet and its peers; only the peers named in `only`, if it is not None."""
    image, match = bench.images[served.name], _Match(bench, served)
    seconds = bench.rules.seconds * served.long
    with ExitStack() as stack:
        host, _ = stack.enter_context(hosts.octet(bench.data_dir, served.name, image, bench.server_core, bench.scratch))
        match.enter("Octet", host)
        stack.callback(host.wake)  # the server must be awake to receive the signal to stop
        _enter_peers(match, stack, [it for it in peers_for(served) if only is None or it.name in only])
        with bench.bare(served.name) as bare:
            if not host.answer.read_bytes().endswith(bare.outputs()[0].tobytes()):
                raise RuntimeError("the server's output differs from that of the bare call")
            match.rounds(lambda host: bench.closed(host, seconds), "closed", bare)
        # The bare call has ended: otherwise pages that Octet shares with it would count as half.
        for name, host in match.playing.items():
            used = memory(host.pid)
            bench.record(Entry(served.name, name, match.titles[name], used.rss_mib, used.pss_mib))
        match.rounds(
            lambda host: host.load(Phase(bench.rules.share * match.capacity(host.name), seconds * OPEN_LONGER)),
            "open",
        )
    for name, title in match.titles.items():
        print(f"  {title:32} {match.capacity(name):8.1f} /s at {CLOSED_CONNECTIONS} connections", flush=True)


def _enter_peers(match: _Match, stack: ExitStack, peers: list[Peer]) -> None:
    """Starts all peers at once, on the one core. A peer that fails to start is recorded and left out."""
    bench, starting = match.bench, []
    image = bench.images[match.served.name]
    for peer in peers:
        path = bench.home.model(match.served.row.files[peer.file])
        try:
            if path is None:
                raise HostFailed(f"{match.served.row.files[peer.file]} is missing")
            process = PeerProcess(bench.home, peer, path, image, bench.server_core, bench.scratch)
            stack.callback(process.close)
            starting.append((peer, process))
        except (HostFailed, OSError) as error:
            match.fail(peer.name, peer.title, error)
    for peer, process in starting:
        try:
            match.enter(peer.title, process.ready(bench.rules.start_limit_s))
        except (HostFailed, OSError, ValueError) as error:
            match.fail(peer.name, peer.title, error)
            process.close()
