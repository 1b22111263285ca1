"""The mixture of layer types that is chosen for a latency limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.core.builds.quantization import LatencyBudget
from service.quantize.search.sensitivity import Point
from service.quantize.search.timing import Within, within

LAYERS = 20


def raised(count: int) -> Point:
    """Returns a mixture with `count` layers in float. Each layer in float increases the share of correct answers by one
    percentage point."""
    names = tuple(map(str, range(count)))
    return Point(names, (), 0.8 + count / 100, math.inf if count == LAYERS else 20.0 + count)


@dataclass
class Ranked:
    names: tuple[str, ...] = tuple(map(str, range(LAYERS)))

    def mixture(self, count: int, floats: int, labels: Sequence[int | None]) -> Point:
        assert floats == count
        return raised(count)


@dataclass
class Watch:
    """A stopwatch for a model that takes `each_s` longer for each layer in float."""

    each_s: float
    base_s: float = 1.0
    asked: list[int] = field(default_factory=list)

    def timed(self, points: Sequence[Point]) -> list[Point]:
        self.asked += [len(point.kept) for point in points]
        return [replace(point, latency_s=self.base_s + self.each_s * len(point.kept)) for point in points]


def found(bound: str, each_s: float = 0.1, budget: float | None = None) -> tuple[Within, Watch]:
    ranked: Any = Ranked()
    watch: Any = Watch(each_s)
    curve = [raised(count) for count in (0, 1, 2, 4, 8, 16, LAYERS)]
    return within(ranked, watch, curve, LatencyBudget.parse(bound), budget), watch


@given(st.integers(0, LAYERS))
def test_as_many_layers_as_fit_are_in_float(most: int) -> None:
    result, watch = found(f"{1.05 + 0.1 * most:.2f}x")
    assert len(result.point.kept) == most
    assert result.met
    assert len(watch.asked) <= 7 + 3, "a binary search between two points of the curve"
    assert {len(point.kept) for point in result.tried} == set(watch.asked)


def test_with_a_budget_the_fastest_mixture_that_meets_both_is_chosen() -> None:
    result, _ = found("2s", budget=0.15)
    assert len(result.point.kept) == 8, "the fastest of the points that were tried and have at least 5 layers in float"
    assert (result.met, result.enough) == (True, True)


def test_the_latency_bound_has_priority_over_the_budget() -> None:
    result, _ = found("1.3x", budget=0.1)
    assert len(result.point.kept) == 3
    assert (result.met, result.enough) == (True, False)


def test_no_layer_is_raised_if_no_mixture_is_fast_enough() -> None:
    result, _ = found("900ms")
    assert result.point.kept == ()
    assert (result.met, result.limit_s) == (False, 0.9)
