"""Chooses which layers to raise to a more precise type, so that the model loses at most a given fraction of right
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.quantize.search.sensitivity import Point

Mixture = Callable[
    [int, int], Point
]  # (number of the noisiest layers to raise, number of these to run in float) -> result


def within(budget: float, curve: Sequence[Point], mixture: Mixture) -> tuple[Point, list[Point]]:
    """Returns a mixture whose fraction of right answers is at most `budget` less than the float model's, and all
    mixtures that were tried.

    The function first finds the smallest number of noisiest layers that must run in float if all others run in
    integers. For some of these layers, the other type (16x8 or bfloat16) may also be accurate enough. So the function
    then finds the smallest number that must stay in float, beginning with the noisiest. Both are binary searches.

    Args:
        curve: measured mixtures, including the one with all layers in int8 and the one with all layers in float.
        mixture: measures a mixture that `curve` does not contain.
    """
    tried = {(point.raised, len(point.kept)): point for point in curve}
    total = max(point.raised for point in curve)
    least = tried[total, total].share - budget

    def is_enough(count: int, floats: int) -> bool:
        if (count, floats) not in tried:
            tried[count, floats] = mixture(count, floats)
        return tried[count, floats].share >= least

    known = min(count for count, floats in tried if count == floats and tried[count, floats].share >= least)
    below = max((count for count, floats in tried if count == floats < known), default=-1)
    raised = _fewest(below, known, lambda count: is_enough(count, count))
    floats = _fewest(-1, raised, lambda floats: is_enough(raised, floats))
    return tried[raised, floats], list(dict.fromkeys(tried[each] for each in sorted(tried)))


def _fewest(below: int, enough: int, is_enough: Callable[[int], bool]) -> int:
    """Returns the smallest count above `below` for which `is_enough` is true. A larger count must never be worse, and
    `enough` must be known to be enough.
    """
    while enough - below > 1:
        middle = (enough + below) // 2
        if is_enough(middle):
            enough = middle
        else:
            below = middle
    return enough
