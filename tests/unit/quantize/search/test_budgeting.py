"""The mixture of layer types that is chosen for a budget of lost answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.quantize.search.budgeting import within
from service.quantize.search.sensitivity import Point

LAYERS = 20
STEPS = (0, 1, 2, 4, 8, 16, LAYERS)


class Network:
    """A network that answers everything right if at least `raised` of the noisiest layers are not in int8, and at least
    `floats` of these are in float. Each missing layer loses one hundredth of the answers.
    """

    def __init__(self, raised: int, floats: int) -> None:
        self.raised, self.floats = raised, floats
        self.asked: list[tuple[int, int]] = []

    def __call__(self, count: int, floats: int) -> Point:
        self.asked.append((count, floats))
        lost = max(0, self.raised - count) + max(0, min(self.floats, count) - floats)
        names = tuple(map(str, range(count)))
        return Point(names[:floats], (), 1 - lost / 100, 30.0, bfloat16=names[floats:])


@given(st.integers(0, LAYERS), st.integers(0, LAYERS))
def test_as_few_layers_as_possible_are_raised_and_fewest_to_float(raised: int, most: int) -> None:
    network = Network(raised, min(raised, most))
    curve = [network(count, count) for count in STEPS]
    point, tried = within(0.0, curve, network)
    assert (point.raised, len(point.kept)) == (raised, min(raised, most))
    assert point in tried
    assert len(set(network.asked)) == len(network.asked) <= len(STEPS) + 9, "a binary search, without repetitions"


@pytest.mark.parametrize(("budget", "raised"), [(0.0, 10), (0.03, 7), (0.5, 0)])
def test_the_budget_may_be_a_number_of_answers(budget: float, raised: int) -> None:
    network = Network(10, 0)
    point, _ = within(budget + 1e-9, [network(count, count) for count in STEPS], network)
    assert (point.raised, point.kept) == (raised, ())


def test_points_of_the_curve_are_not_measured_again() -> None:
    network = Network(4, 0)
    curve = [network(count, floats) for count in STEPS for floats in {0, count}]
    network.asked.clear()
    within(0.0, curve, network)
    assert set(network.asked).isdisjoint({(count, floats) for count in STEPS for floats in (0, count)})
