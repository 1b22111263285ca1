"""Made-up records of a contest, for tests of the figures and the report."""

from benchmarks.contest.figures import Results
from benchmarks.contest.records import Entry, Model, Run, Slice
from benchmarks.harness.turn import Turn

RUN = Run(
    started_at="2026-01-01 00:00 UTC",
    cpu="a CPU",
    target="x86-64-v4+vnni",
    cores=[0, 1],
    peak="vpdpbusd zmm",
    rounds=3,
    seconds=0.3,
    quiet_cpus=0.1,
    repeats=3,
    versions={"octet": "0.1.0"},
)


def turn(median_ms: float, other_cpus: float = 0.0) -> Turn:
    return Turn(calls=10, median_ms=median_ms, min_ms=0.9 * median_ms, p90_ms=median_ms, other_cpus=other_cpus)


def results_of(medians_ms: dict[tuple[str, str, int], float], macs: int = 1_000_000) -> Results:
    """Returns the results of one round. A call of the peak's loop has `macs` multiply-accumulates, like each model."""
    results = Results()
    results.add(RUN)
    for model in dict.fromkeys(model for model, _, _ in medians_ms):
        results.add(Model(model, model.title(), "", 1, macs))
    for (model, contestant, threads), median_ms in medians_ms.items():
        info = {"macs": macs, "macs_each": 64, "clock_ghz": 4.0, "starts_per_cycle": 1}
        results.add(Entry(model, contestant, threads, [0], info))
        results.add(Slice(model, contestant, threads, 0, 0, turn(median_ms)))
    return results
