"""Finds and formats measurements for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from benchmarks.harness.tables import TIMES, milliseconds
from benchmarks.models.catalog import Row
from benchmarks.paper import speed
from benchmarks.paper.recorded import FASTEST
from benchmarks.paper.store import Measurement

BUSY = "beside other load"

_INT8 = ("octet-xnnpack", "octet-onnx", "octet-mxnet", FASTEST)
_FLOAT32 = ("octet-fp32", "octet-fp32-tflite")

Chosen = TypeVar("Chosen", bound=tuple[Measurement, ...])
Times = dict[tuple[str, str, int], Measurement]  # the times of one run, by model, contestant and threads


class Figures:
    """The measurements of all runs. Times are compared only within one run."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self._found: dict[tuple[str, tuple[str, ...]], Measurement] = {}
        self._runs: dict[str, Times] = {}
        for each in sorted(measurements, key=lambda each: each.run):
            self._found[each.part, each.name] = each
            if each.part == speed.PART:
                model, contestant, threads = each.name
                self._runs.setdefault(each.run, {})[model, contestant, int(threads)] = each

    @property
    def runs(self) -> dict[str, list[Measurement]]:
        """Returns the measurements of each run, the latest of each name in a part."""
        kept: dict[str, list[Measurement]] = {}
        for each in self._found.values():
            kept.setdefault(each.run, []).append(each)
        for run, times in self._runs.items():
            kept[run] = [*(each for each in kept.get(run, []) if each.part != speed.PART), *times.values()]
        return dict(sorted(kept.items()))

    @property
    def models(self) -> Sequence[Row]:
        """Returns the models of the part `speed`, measured or not."""
        return speed.ROWS

    @property
    def threads(self) -> list[int]:
        return sorted({threads for times in self._runs.values() for _, _, threads in times})

    def of(self, part: str) -> list[Measurement]:
        """Returns the latest measurements of a part, by name."""
        return [each for (found, _), each in sorted(self._found.items()) if found == part]

    def get(self, part: str, *name: str) -> Measurement | None:
        return self._found.get((part, name))

    def own_pair(self, model: str, threads: int) -> tuple[Measurement, Measurement] | None:
        """Returns Octet's fastest times in float32 and in int8, or None if no run has both."""
        pairs = []
        for times in self._latest_first():
            real, quantized = (_fastest(times, model, names, threads) for names in (_FLOAT32, _INT8))
            if real and quantized:
                pairs.append((real, quantized))
        return _quiet_or_latest(pairs)

    def beside(self, model: str, peers: Sequence[str], threads: int) -> tuple[Measurement, ...] | None:
        """Returns Octet's fastest time in int8 and those of the peers, or None if no run has both."""
        rows = []
        for times in self._latest_first():
            own = _fastest(times, model, _INT8, threads)
            others = [each for peer in peers if (each := times.get((model, peer, threads)))]
            if own and others:
                rows.append((own, *others))
        return _quiet_or_latest(rows)

    def two_models(self, models: tuple[str, str], contestant: str, threads: int) -> tuple[Measurement, ...] | None:
        """Returns a contestant's times of two models, or None if no run has both."""
        rows = []
        for times in self._latest_first():
            found = [each for model in models if (each := times.get((model, contestant, threads)))]
            if len(found) == len(models):
                rows.append(tuple(found))
        return _quiet_or_latest(rows)

    def _latest_first(self) -> Iterator[Times]:
        return (self._runs[run] for run in sorted(self._runs, reverse=True))


def _fastest(times: Times, model: str, contestants: Sequence[str], threads: int) -> Measurement | None:
    found = [each for name in contestants if (each := times.get((model, name, threads)))]
    return min(found, key=lambda each: float(each.values["median_ms"]), default=None)


def _quiet_or_latest(rows: Sequence[Chosen]) -> Chosen | None:
    """Returns the first row that was not disturbed, or else the first row."""
    return next((row for row in rows if not _disturbed(row)), rows[0] if rows else None)


def _disturbed(times: Iterable[Measurement]) -> bool:
    return any(each.values["mostly_disturbed"] for each in times)


def ratio(slower: Measurement, faster: Measurement) -> float:
    """Returns the quotient of two times."""
    return float(slower.values["median_ms"]) / float(faster.values["median_ms"])


def multiple(value: float) -> str:
    """Formats a quotient."""
    return f"{value:.2f} {TIMES}"


def text(time: Measurement | None) -> str:
    """Returns a time in milliseconds, with a star if most rounds were disturbed."""
    if time is None:
        return ""
    return f"{milliseconds(time.values['median_ms'])}{'*' if time.values['mostly_disturbed'] else ''}"


def days(measurements: Iterable[Measurement | None]) -> str:
    """Returns the day of the measurements, or the first and the last one."""
    found = sorted({each.day for each in measurements if each})
    return " to ".join(dict.fromkeys([found[0], found[-1]]))


def timed(times: Sequence[Measurement]) -> list[str]:
    """Returns the machines of some times, and their days; the latter with a mark if a time was disturbed."""
    machines = dict.fromkeys(each.machine for each in times)
    return ["; ".join(machines), f"{days(times)}, {BUSY}" if _disturbed(times) else days(times)]
