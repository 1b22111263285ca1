"""Measures the loss that quantizing each layer alone causes, and the loss that remains if some layers run in a more
precise type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.compiler.messages.checking import ArtifactFiles
from service.core.builds.quantization import Raised
from service.quantize.calibration.data import Data, accuracy
from service.quantize.calibration.observing import CalibrationSession

RANKING = 16  # number of inputs that are used to rank layers; each input is run once for every layer


@dataclass(frozen=True)
class Point:
    """A mixture of layers in float, 16x8, bfloat16 and int8, with its measurements.

    Attributes:
        kept: layers in float.
        wide: layers of 16x8.
        bfloat16: layers in bfloat16.
        share: the fraction of inputs for which the model's answer equals the label, or, without labels, the float
            model's answer.
        noise: the signal-to-noise ratio of the first output, in dB.
        latency_s: the time of a call in seconds; None if it was not measured.
    """

    kept: tuple[str, ...]
    wide: tuple[str, ...]
    share: float
    noise: float
    latency_s: float | None = None
    bfloat16: tuple[str, ...] = ()

    @property
    def raised(self) -> int:
        """The number of layers that are not in int8."""
        return len(self.kept) + len(self.wide) + len(self.bfloat16)

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> Point:
        noise, taken_ms = members["output_db"], members.get("latency_ms")
        kept, wide, bfloat16 = (tuple(map(str, members[name])) for name in ("kept", "wide", "bfloat16"))
        decibels, taken_s = math.inf if noise is None else float(noise), None if taken_ms is None else taken_ms / 1e3
        return Point(kept, wide, float(members["share"]), decibels, taken_s, bfloat16)

    def to_json(self) -> dict[str, Any]:
        layers = {"kept": list(self.kept), "wide": list(self.wide), "bfloat16": list(self.bfloat16)}
        taken = {} if self.latency_s is None else {"latency_ms": 1e3 * self.latency_s}
        return {**layers, "share": self.share, "output_db": finite(self.noise), **taken}


@dataclass(frozen=True)
class Sensitivity:
    """The loss that each layer causes, and a model that can run any mixture of layer types.

    Attributes:
        layers: layer -> the signal-to-noise ratio of the first output in dB, if only that layer is in int8. The
            noisiest come first.
        wide: the same ratio if only that layer is 16x8.
        names: the layers, in the order of the switches.
    """

    layers: dict[str, float]
    wide: dict[str, float]
    names: tuple[str, ...]
    _session: CalibrationSession
    _built: ArtifactFiles
    _data: Data

    @staticmethod
    def measure(session: CalibrationSession, built: ArtifactFiles, data: Data, names: Sequence[str]) -> Sensitivity:
        """Runs the first `RANKING` inputs with every layer alone in int8, with every layer alone in 16x8, and with all
        layers in float.
        """
        rows = np.vstack([np.zeros(2 * len(names)), np.eye(2 * len(names))])
        sums, _ = session.switched(built, replace(data, most=min(data.most, RANKING)), rows.tolist())
        alone = [decibels(*row) for row in sums[1:]]
        halves = (alone[: len(names)], alone[len(names) :])
        integer, wide = (dict(sorted(zip(names, half, strict=True), key=lambda each: each[1])) for half in halves)
        return Sensitivity(integer, wide, tuple(names), session, built, data)

    def to_json(self, curve: Sequence[Point]) -> dict[str, Any]:
        layers, wide = ({name: finite(noise) for name, noise in found.items()} for found in (self.layers, self.wide))
        return {"layers_db": layers, "wide_layers_db": wide, "curve": [point.to_json() for point in curve]}

    def curve(self, labels: Sequence[int | None] = (), raise_to: Raised = Raised.WIDE) -> list[Point]:
        """Measures the remaining loss when 0, 1, 2, 4 … all of the noisiest layers are in float instead of int8. If
        `raise_to` is 16x8, also measures the loss when these layers are in 16x8.
        """
        counts = [0, *(1 << index for index in range(len(self.names).bit_length())), len(self.names)]
        steps = sorted({min(count, len(self.names)) for count in counts})
        others = (0,) if raise_to is Raised.WIDE else ()
        return self._points([(count, floats) for count in steps for floats in dict.fromkeys((*others, count))], labels)

    def mixture(self, count: int, floats: int, labels: Sequence[int | None] = ()) -> Point:
        """Measures the mixture in which `count` of the noisiest layers are not in int8, and `floats` of these are in
        float.
        """
        (point,) = self._points([(count, floats)], labels)
        return point

    def _points(self, mixtures: Sequence[tuple[int, int]], labels: Sequence[int | None]) -> list[Point]:
        """Measures several mixtures. Each is (count, floats), the arguments of `mixture`."""
        made = []
        for count, floats in mixtures:
            raised = list(self.layers)[:count]
            in_float = [name for name in self.wide if name in raised][:floats]
            made.append((tuple(in_float), tuple(name for name in raised if name not in in_float)))
        rows = [[0.0] * (2 * len(self.names))]
        for kept, wide in made:
            integer = [float(name not in kept and name not in wide) for name in self.names]
            rows.append(integer + [float(name in wide) for name in self.names])
        sums, classes = self._session.switched(self._built, self._data, rows)
        known = labels if any(label is not None for label in labels) else classes[:, 0].tolist()
        return [
            Point(*mixture, float(accuracy(found.tolist(), known)["share"]), decibels(*row))
            for mixture, found, row in zip(made, classes.T[1:], sums[1:], strict=True)
        ]


def decibels(signal: float, noise: float) -> float:
    """Returns 10 log10(signal / noise), for sums of squares. The result is infinite if the noise is 0."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def finite(value: float) -> float | None:
    """Returns the value for JSON: None represents infinity."""
    return value if math.isfinite(value) else None
