"""Times several artifacts of one model in turns, so that other programs on the machine slow all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.core.models.arrays import Array
from service.core.verification.vectors import sample_inputs
from service.runtime.model import Model

_FEWEST_ROUNDS = 5


def time_calls(models: Sequence[Model], seconds: float) -> list[dict[str, float]]:
    """Returns the time of each model's kernels, by symbol. Measures for about `seconds` and at least five rounds.

    Every call is timed at its position in the model. The fastest time of each call in any round counts. The times of
    the calls of one symbol are added.
    """
    inputs = sample_inputs(models[0].signature, 2)[1]  # the second sample is random
    least = [model.time_calls(inputs) for model in models]
    for round_ in _rounds(seconds):
        for which in _in_turn(len(models), round_):
            with models[which].threads:
                np.minimum(least[which], models[which].time_calls(inputs), out=least[which])
    return [_by_symbol(model.native.calls, times) for model, times in zip(models, least, strict=True)]


@dataclass(frozen=True)
class Race:
    """The result of timing two models in turns.

    Attributes:
        rounds: the number of calls of each.
        first_s, second_s: the medians.
        times_as_fast: how many times as fast as the first model the second one is: the ratio of the medians or the
            ratio of the fastest calls, whichever is smaller. Chance rarely makes the second model look faster by both
            ratios.
    """

    rounds: int
    first_s: float
    second_s: float
    times_as_fast: float

    def to_json(self) -> Mapping[str, float]:
        return vars(self)


def race(first: Model, second: Model, seconds: float) -> Race:
    """Times whole calls of both models in turns, for about `seconds`."""
    models = (first, second)
    inputs = sample_inputs(first.signature, 2)[1]
    for model in models:
        model.run(inputs)
    pairs: list[tuple[float, float]] = []
    for round_ in _rounds(seconds):
        times = [0.0, 0.0]
        for which in _in_turn(2, round_):
            started_s = time.perf_counter()
            models[which].run(inputs)
            times[which] = time.perf_counter() - started_s
        pairs.append((times[0], times[1]))
    firsts, seconds_ = zip(*pairs, strict=True)
    ratio = statistics.median(one / other for one, other in pairs)
    times_as_fast = min(ratio, min(firsts) / min(seconds_))
    return Race(len(pairs), statistics.median(firsts), statistics.median(seconds_), times_as_fast)


def _rounds(seconds: float) -> Iterator[int]:
    until_s, round_ = time.perf_counter() + seconds, 0
    while round_ < _FEWEST_ROUNDS or time.perf_counter() < until_s:
        yield round_
        round_ += 1


def _in_turn(count: int, round_: int) -> range:
    """Returns the order of one round. The order alternates, so that no model always runs after the same other model."""
    return range(count) if round_ % 2 == 0 else range(count - 1, -1, -1)


def _by_symbol(symbols: Sequence[str], times: Array) -> dict[str, float]:
    found: dict[str, float] = {}
    for symbol, taken in zip(symbols, times, strict=True):
        found[symbol] = found.get(symbol, 0.0) + float(taken)
    return found
