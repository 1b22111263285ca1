"""Made-up measurements, for tests of the papers' tables."""

from typing import Any

from benchmarks.paper.store import Measurement

DAY, RUN = "2026-01-02", "2026-01-02 10:00 UTC"


def measurement(part: str, *name: str, day: str = DAY, **values: Any) -> Measurement:
    return Measurement(part, name, values, day, f"{day} 10:00 UTC", "a CPU, x86-64-v4+vnni", {"octet": "0.2.0"})


def time(
    model: str, contestant: str, median_ms: float, day: str = DAY, threads: int = 1, disturbed: bool = False
) -> Measurement:
    name = (model, contestant, str(threads))
    return measurement("speed", *name, day=day, median_ms=median_ms, mostly_disturbed=disturbed)
