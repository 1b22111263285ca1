"""Which layers to raise for the rest to meet a budget of answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.quantize.data import accuracy, classes_of
from service.quantize.quantization import Calibration, Options
from service.quantize.sensitivity import Point, Sensitivity

Mixture = Callable[[int, int], Point]  # with so many of the noisiest layers raised, and so many of these to float


def within(budget: float, curve: Sequence[Point], mixture: Mixture) -> tuple[Point, list[Point]]:
    """A mixture whose share of right answers is at most `budget` below the float model's, and all that were tried.

    First the fewest of the noisiest layers are found that have to be in float, the others being in integers; then how
    few of these are enough, the noisiest, with the rest of them raised to less than that. Both by halves.

    Args:
        curve: among them the mixture with no layer raised and that with all in float.
        mixture: measures what is not among them.
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


def in_bfloat16(
    calibration: Calibration, ranked: Sensitivity, options: Options, labels: Sequence[int | None] = ()
) -> Mixture:
    """Mixtures in which layers that are raised and not to float multiply bfloat16. Those for which there is no
    bfloat16, or which gain nothing (`narrowing.objection`), are in float besides. Each mixture is built as it will be
    served, and runs all inputs.

    Args:
        options: which layers are raised besides.
    """
    able = calibration.narrowable(options, ranked.names)

    def mixture(count: int, floats: int) -> Point:
        raised = list(ranked.layers)[:count]
        bfloat16 = tuple(name for name in raised if name in able)[floats:]
        if not bfloat16:
            return ranked.mixture(count, count, labels)
        kept = tuple(name for name in raised if name not in bfloat16)
        measured = calibration.measure(calibration.quantize(options.raising(kept, bfloat16=bfloat16)))
        known = labels if any(label is not None for label in labels) else classes_of(list(measured.float_answers))
        share = float(accuracy(classes_of(list(measured.answers)), known)["share"])
        return Point(kept, (), share, next(iter(measured.outputs.values())), bfloat16=bfloat16)

    return mixture


def _fewest(below: int, enough: int, is_enough: Callable[[int], bool]) -> int:
    """The least count above `below` that is enough, as far as more are better; `enough` is."""
    while enough - below > 1:
        middle = (enough + below) // 2
        if is_enough(middle):
            enough = middle
        else:
            below = middle
    return enough
