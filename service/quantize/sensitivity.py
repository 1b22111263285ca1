"""What each layer's quantization costs alone, and which layers to raise to 16x8 or float for the rest to meet a
budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.quantize.building import Built
from service.quantize.data import Data, accuracy
from service.quantize.observing import Workshop

RANKING = 16  # inputs by which layers are ranked: each is run once for every layer


@dataclass(frozen=True)
class Point:
    """A mixture of layers in float, of 16x8 and in integers.

    Attributes:
        kept: layers in float.
        wide: layers of 16x8.
        share: of the inputs that are answered as the labels say; or, without labels, as the float model does.
        noise: the first output's signal-to-noise ratio, in dB.
        latency_s: how long a call takes; None where that was not measured.
    """

    kept: tuple[str, ...]
    wide: tuple[str, ...]
    share: float
    noise: float
    latency_s: float | None = None

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> Point:
        noise, taken_ms = members["output_db"], members.get("latency_ms")
        kept, wide = (tuple(map(str, members[name])) for name in ("kept", "wide"))
        decibels = math.inf if noise is None else float(noise)
        return Point(kept, wide, float(members["share"]), decibels, None if taken_ms is None else taken_ms / 1e3)

    def to_json(self) -> dict[str, Any]:
        kept, wide = list(self.kept), list(self.wide)
        taken = {} if self.latency_s is None else {"latency_ms": 1e3 * self.latency_s}
        return {"kept": kept, "wide": wide, "share": self.share, "output_db": finite(self.noise), **taken}


@dataclass(frozen=True)
class Sensitivity:
    """
    Attributes:
        layers: the first output's signal-to-noise ratio in dB with that layer alone in integers, the noisiest first.
        wide: the same with that layer alone of 16x8.
        names: the layers, in the order of the switches.
    """

    layers: dict[str, float]
    wide: dict[str, float]
    names: tuple[str, ...]
    _workshop: Workshop
    _built: Built
    _data: Data

    @staticmethod
    def measured(workshop: Workshop, built: Built, data: Data, names: Sequence[str]) -> Sensitivity:
        """Runs the first `RANKING` inputs with every layer alone, in both forms, and with none."""
        rows = np.vstack([np.zeros(2 * len(names)), np.eye(2 * len(names))])
        sums, _ = workshop.switched(built, replace(data, most=min(data.most, RANKING)), rows.tolist())
        alone = [decibels(*row) for row in sums[1:]]
        halves = (alone[: len(names)], alone[len(names) :])
        integer, wide = (dict(sorted(zip(names, half, strict=True), key=lambda each: each[1])) for half in halves)
        return Sensitivity(integer, wide, tuple(names), workshop, built, data)

    def to_json(self, curve: Sequence[Point]) -> dict[str, Any]:
        layers, wide = ({name: finite(noise) for name, noise in found.items()} for found in (self.layers, self.wide))
        return {"layers_db": layers, "wide_layers_db": wide, "curve": [point.to_json() for point in curve]}

    def curve(self, labels: Sequence[int | None] = ()) -> list[Point]:
        """What is left of the cost with more and more of the noisiest layers raised, to 16x8 and to float: none, 1, 2,
        4 … all."""
        counts = [0, *(1 << place for place in range(len(self.names).bit_length())), len(self.names)]
        steps = sorted({min(count, len(self.names)) for count in counts})
        mixtures = [(count, floats) for count in steps for floats in dict.fromkeys((0, count))]
        return self._points(mixtures, labels)

    def within(self, budget: float, labels: Sequence[int | None] = ()) -> tuple[Point, list[Point]]:
        """A mixture whose share of right answers is at most `budget` below the float model's, and all that were tried.

        First the fewest of the noisiest layers are found that have to be in float, the others being in integers; then
        how few of these are enough, the noisiest of 16x8, with the rest of them of 16x8. Both by halves.
        """
        tried = {(len(point.kept) + len(point.wide), len(point.kept)): point for point in self.curve(labels)}
        total = len(self.names)
        best = tried[total, total].share - budget

        def enough(count: int, floats: int) -> bool:
            if (count, floats) not in tried:
                (tried[count, floats],) = self._points([(count, floats)], labels)
            return tried[count, floats].share >= best

        known = [count for count in range(total + 1) if (count, count) in tried and tried[count, count].share >= best]
        below = max((each for each, floats in tried if each == floats and each < min(known)), default=-1)
        raised = _fewest(below, min(known), lambda count: enough(count, count))
        floats = _fewest(-1, raised, lambda floats: enough(raised, floats))
        return tried[raised, floats], [tried[each] for each in sorted(tried)]

    def in_float(self, count: int, labels: Sequence[int | None] = ()) -> Point:
        """With so many of the noisiest layers in float."""
        (point,) = self._points([(count, count)], labels)
        return point

    def _points(self, mixtures: Sequence[tuple[int, int]], labels: Sequence[int | None]) -> list[Point]:
        """With so many of the noisiest layers raised, and so many of these to float."""
        made = []
        for count, floats in mixtures:
            raised = list(self.layers)[:count]
            in_float = [name for name in self.wide if name in raised][:floats]
            made.append((tuple(in_float), tuple(name for name in raised if name not in in_float)))
        rows = [[0.0] * (2 * len(self.names))]
        for kept, wide in made:
            integer = [float(name not in kept and name not in wide) for name in self.names]
            rows.append(integer + [float(name in wide) for name in self.names])
        sums, classes = self._workshop.switched(self._built, self._data, rows)
        known = labels if any(label is not None for label in labels) else classes[:, 0].tolist()
        return [
            Point(*mixture, float(accuracy(found.tolist(), known)["share"]), decibels(*row))
            for mixture, found, row in zip(made, classes.T[1:], sums[1:], strict=True)
        ]


def _fewest(below: int, enough: int, is_enough: Callable[[int], bool]) -> int:
    """The least count above `below` that is enough, as far as more are better; `enough` is."""
    while enough - below > 1:
        middle = (enough + below) // 2
        if is_enough(middle):
            enough = middle
        else:
            below = middle
    return enough


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise) of sums of squares; infinite without noise."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def finite(value: float) -> float | None:
    """As JSON has it: None for what is infinite."""
    return value if math.isfinite(value) else None
