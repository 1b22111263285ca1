"""The scenarios of docs/scaling.md, as a table: `python -m benchmarks.scaling [--seconds 60]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.harness.tables import print_table
from benchmarks.scaling.cluster import Shape
from benchmarks.scaling.costs import Costs, measure
from benchmarks.scaling.simulation import Simulation

_COLUMNS = (
    *("cluster", "misses", "full", "busiest worker", "loads /s", "fetched", "evictions /s", "table", "to a router"),
    *("whole table", "database: beats and routers", "names polled", "names swept"),
)
_LOOKS_PER_S = 2.0  # Look-ups per worker and name, before workers were notified of changes.
_SWEEP_S = 300.0  # The interval of look-ups since then: `service.workers.inference.following`.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of simulated time; the second half is counted")
    arguments = parser.parse_args()
    costs = measure()
    print(f"measured: {costs}", file=sys.stderr)
    print_table(_COLUMNS, (_row(*scenario, costs) for scenario in _scenarios(arguments.seconds)))


def _scenarios(seconds: float) -> Iterator[tuple[str, Shape, tuple[tuple[float, int], ...]]]:
    base = Shape(seconds=seconds)
    yield "1,000 workers, 8 GB each", base, ()
    yield "nothing in memory at first", replace(base, is_warm=False), ()
    yield "one more holder each second", replace(base, doubles=False), ()
    yield "Zipf 0.8", replace(base, zipf=0.8), ()
    yield "Zipf 1.2", replace(base, zipf=1.2), ()
    yield "1.5 GB each", replace(base, memory_bytes=1.5e9), ()
    yield "1 GB each", replace(base, memory_bytes=1e9), ()
    yield "100 die at once", base, ((0.6 * seconds, 100),)
    yield (
        "100 workers, 10,000 models, 100,000 /s",
        replace(base, workers=100, models=10_000, requests_per_s=1e5, routers=5),
        (),
    )


def _row(title: str, shape: Shape, deaths: tuple[tuple[float, int], ...], costs: Costs) -> list[str]:
    simulation = Simulation(shape, deaths=deaths)
    tally = simulation.run()
    half_s = shape.seconds / 2
    names = len(simulation.holdings.pairs()[0])
    events, sent = tally.events, tally.sent_bytes
    looks = events["look"] / half_s
    database_s = events["heartbeat"] / half_s * costs.beat_s + looks * costs.list_s * shape.workers / 1_000
    return [
        title,
        f"{tally.missed / tally.requests:.2%}",
        f"{tally.full / tally.requests:.2%}",
        f"{tally.busiest:.0%}",
        f"{events['fetch'] / half_s:,.0f}",
        f"{sent['fetch'] / half_s / 1e9:.2f} GB/s",
        f"{events['eviction'] / half_s:,.0f}",
        f"{names:,} entries",
        f"{(sent['look'] + sent['worker read']) / half_s / shape.routers / 1e6:.2f} MB/s",
        f"{sent['table'] / half_s / shape.routers / 1e6:.1f} MB/s",
        f"{database_s:.1f} cores",
        f"{names * _LOOKS_PER_S * costs.look_s:,.0f} cores",
        f"{names / _SWEEP_S * costs.look_s:.1f} cores",
    ]


if __name__ == "__main__":
    main()
