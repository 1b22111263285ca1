"""Measures the latency of mixtures of layer types, built as they will be served, and finds the best mixture within a
latency limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.compiler.messages.checking import ArtifactFiles
from service.core.builds.quantization import LatencyBudget
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.search.sensitivity import Point, Sensitivity

_SECONDS = 0.5  # how long a mixture is run in one measurement, and how long the base is run with it


class Stopwatch:
    """Builds mixtures, and measures the time of each. While it is measured, a mixture runs alternately with the base,
    which is the mixture with all layers in int8.

    Other load on the machine then slows the mixture and the base down in the same way. A mixture's latency is the ratio
    of the two times, multiplied by the base latency.

    Attributes:
        base_s: the base latency, which is that of the mixture with all layers in int8, measured at the start.
    """

    def __init__(self, session: CalibrationSession, file: Callable[[Point], bytes], base: Point) -> None:
        """
        Args:
            file: returns the quantized ONNX file for a mixture.
        """
        self._session, self._file = session, file
        self._base = session.build(file(base))
        self.base_s = self._against(self._base)[1]

    def timed(self, points: Sequence[Point]) -> list[Point]:
        """Returns the given mixtures with their latencies added."""
        made = []
        for index, point in enumerate(points):
            self._session.tick("times mixtures", index, len(points))
            made.append(replace(point, latency_s=self._taken_s(point)))
        return made

    def _taken_s(self, point: Point) -> float:
        if not (point.kept or point.wide):
            return self.base_s
        built = self._session.build(self._file(point))
        base_s, own_s = self._against(built)
        self._session.discard(built)
        return self.base_s * own_s / base_s

    def _against(self, built: ArtifactFiles) -> tuple[float, float]:
        return self._session.paired(self._base, built, 2 * _SECONDS)


@dataclass(frozen=True)
class Within:
    """The best mixture within a latency limit.

    Attributes:
        tried: all mixtures that were measured and timed.
        limit_s: the limit.
        met: true if a mixture is within the limit. If none is, `point` is the mixture with all layers in int8.
        enough: true if `point` also meets the budget for lost answers.
    """

    point: Point
    tried: list[Point]
    limit_s: float
    met: bool
    enough: bool

    def to_json(self, budget: LatencyBudget) -> dict[str, Any]:
        return {"asked": str(budget), "limit_ms": 1e3 * self.limit_s, "met": self.met, "budget_met": self.enough}


def within(
    ranked: Sensitivity,
    watch: Stopwatch,
    tried: Sequence[Point],
    bound: LatencyBudget,
    budget: float | None,
    labels: Sequence[int | None] = (),
) -> Within:
    """Returns the mixture within `bound` that loses the fewest right answers; of several, the one with the least noise.
    With a `budget` for lost answers, returns the fastest mixture that meets the budget, if one does.

    In addition to the mixtures in `tried`, it runs as many of the noisiest layers in float as the limit allows. A
    binary search finds their number.

    Args:
        tried: measured mixtures, including the one with all layers in int8 and the one with all layers in float.
    """
    limit_s, total = bound.limit_s(watch.base_s), len(ranked.names)
    points = {(point.kept, point.wide): point for point in watch.timed(tried)}
    floats = {len(point.kept): point for point in points.values() if not point.wide}
    fitting = max((count for count, point in floats.items() if _taken_s(point) <= limit_s), default=total)
    beyond = min((count for count in floats if count > fitting), default=fitting)
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        (point,) = watch.timed([ranked.mixture(middle, middle, labels)])
        points[point.kept, point.wide] = point
        fitting, beyond = (middle, beyond) if _taken_s(point) <= limit_s else (fitting, middle)
    inside = [point for point in points.values() if _taken_s(point) <= limit_s]
    least = -math.inf if budget is None else floats[total].share - budget
    enough = [point for point in inside if budget is not None and point.share >= least]
    if enough:
        best = min(enough, key=_taken_s)
    else:
        best = max(inside or [floats[0]], key=lambda point: (point.share, point.noise))
    order = sorted(points.values(), key=lambda point: (len(point.kept) + len(point.wide), len(point.kept)))
    return Within(best, order, limit_s, bool(inside), best.share >= least)


def _taken_s(point: Point) -> float:
    return math.inf if point.latency_s is None else point.latency_s
