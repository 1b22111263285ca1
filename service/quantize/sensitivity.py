"""What each layer's quantization costs alone, and which layers to leave in float for the rest to meet a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.quantize.building import Built
from service.quantize.data import Data, accuracy
from service.quantize.observing import Workshop

RANKING = 16  # inputs by which layers are ranked: each is run once for every layer


@dataclass(frozen=True)
class Point:
    """A mixture of layers in float and in integers.

    Attributes:
        kept: layers in float.
        share: of the inputs that are answered as the labels say; or, without labels, as the float model does.
        noise: the first output's signal-to-noise ratio, in dB.
    """

    kept: tuple[str, ...]
    share: float
    noise: float

    def to_json(self) -> dict[str, Any]:
        return {"kept": list(self.kept), "share": self.share, "output_db": _finite(self.noise)}


@dataclass(frozen=True)
class Sensitivity:
    """
    Attributes:
        layers: the first output's signal-to-noise ratio in dB with that layer alone in integers, the noisiest first.
        names: the layers, in the order of the switches.
    """

    layers: dict[str, float]
    names: tuple[str, ...]
    _workshop: Workshop
    _built: Built
    _data: Data

    @staticmethod
    def measured(workshop: Workshop, built: Built, data: Data, names: Sequence[str]) -> Sensitivity:
        """Runs the first `RANKING` inputs with every layer alone, and with none."""
        rows = np.vstack([np.zeros(len(names)), np.eye(len(names))])
        sums, _ = workshop.switched(built, replace(data, most=min(data.most, RANKING)), rows.tolist())
        noise = {name: decibels(*row) for name, row in zip(names, sums[1:], strict=True)}
        ordered = dict(sorted(noise.items(), key=lambda each: each[1]))
        return Sensitivity(ordered, tuple(names), workshop, built, data)

    def to_json(self, curve: Sequence[Point]) -> dict[str, Any]:
        layers = {name: _finite(noise) for name, noise in self.layers.items()}
        return {"layers_db": layers, "curve": [point.to_json() for point in curve]}

    def curve(self, labels: Sequence[int | None] = ()) -> list[Point]:
        """What is left of the cost with more and more of the noisiest layers in float: none, 1, 2, 4 … all."""
        counts = [0, *(1 << place for place in range(len(self.names).bit_length())), len(self.names)]
        return self._points(sorted({min(count, len(self.names)) for count in counts}), labels)

    def within(self, budget: float, labels: Sequence[int | None] = ()) -> tuple[Point, list[Point]]:
        """The fewest of the noisiest layers in float with which the share of right answers is at most `budget` below
        the float model's, and all mixtures tried: a search by halves between two points of the curve."""
        tried = {len(point.kept): point for point in self.curve(labels)}
        best = tried[len(self.names)].share - budget
        enough = min(count for count, point in tried.items() if point.share >= best)
        below = max((count for count in tried if count < enough), default=enough - 1)
        while enough - below > 1:
            middle = (enough + below) // 2
            (tried[middle],) = self._points([middle], labels)
            if tried[middle].share >= best:
                enough = middle
            else:
                below = middle
        return tried[enough], [tried[count] for count in sorted(tried)]

    def _points(self, counts: Sequence[int], labels: Sequence[int | None]) -> list[Point]:
        """With so many of the noisiest layers in float."""
        noisiest = list(self.layers)
        rows = [[0.0] * len(self.names)]
        rows += [[float(name not in noisiest[:count]) for name in self.names] for count in counts]
        sums, classes = self._workshop.switched(self._built, self._data, rows)
        known = labels if any(label is not None for label in labels) else classes[:, 0].tolist()
        return [
            Point(tuple(noisiest[:count]), float(accuracy(found.tolist(), known)["share"]), decibels(*row))
            for count, found, row in zip(counts, classes.T[1:], sums[1:], strict=True)
        ]


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise) of sums of squares; infinite without noise."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
