"""Measures the loss that quantizing each layer alone causes, and the loss that remains if some layers run in a more
precise type.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from service.compiler.messages.observing import ObservedModel
from service.core.builds.quantization import Raised
from service.core.verification.scoring import accuracy
from service.quantize.calibration.data import Data
from service.quantize.calibration.observing import CalibrationSession

RANKING = 16  # number of inputs that are used to rank layers; each input is run once for every layer


class Precision(IntEnum):
    """The types in which a layer can run. The value is the index of a set of the calibration program's parameters."""

    FLOAT = 0
    INTEGER = 1
    WIDE = 2
    BFLOAT16 = 3


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
    def of(raised: Mapping[str, Precision], share: float, noise: float) -> Point:
        """Returns the point of a mixture; `raised` contains the layers that are not in int8."""
        float_ones, wide, narrow = (
            tuple(name for name, each in raised.items() if each is precision)
            for precision in (Precision.FLOAT, Precision.WIDE, Precision.BFLOAT16)
        )
        return Point(float_ones, wide, share, noise, bfloat16=narrow)

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
class Mixtures:
    """A calibration program, and the parameters of its layers in each `Precision`.

    Attributes:
        model: the program. Its first set of parameters is that of `Precision.FLOAT`, and so on.
        layers: all layers with parameters, in the order of the program.
        narrowable: the layers that can run in bfloat16.
    """

    model: ObservedModel
    layers: tuple[str, ...]
    narrowable: Collection[str]

    def row(self, precisions: Mapping[str, Precision]) -> tuple[int, ...]:
        """Returns the row of parameters for these layers. All others are float."""
        return tuple(int(precisions.get(name, Precision.FLOAT)) for name in self.layers)


@dataclass(frozen=True)
class Sensitivity:
    """The loss that each layer causes, and a model that can run any mixture of layer types.

    Attributes:
        layers: layer -> the signal-to-noise ratio of the first output in dB, if only that layer is in int8. The
            noisiest come first.
        wide: the same ratio if only that layer is 16x8.
        names: the layers.
        raise_to: the type between int8 and float.
    """

    layers: dict[str, float]
    wide: dict[str, float]
    names: tuple[str, ...]
    raise_to: Raised
    _session: CalibrationSession
    _mixtures: Mixtures
    _data: Data

    @staticmethod
    def measure(
        session: CalibrationSession, mixtures: Mixtures, data: Data, names: Sequence[str], raise_to: Raised
    ) -> Sensitivity:
        """Runs the first `RANKING` inputs with every layer alone in int8, with every layer alone in 16x8, and with all
        layers in float.
        """
        rows = [mixtures.row({})]
        rows += [mixtures.row({name: each}) for each in (Precision.INTEGER, Precision.WIDE) for name in names]
        sums, _ = session.switched(mixtures.model, replace(data, most=min(data.most, RANKING)), rows)
        alone = [decibels(*row) for row in sums[1:]]
        halves = (alone[: len(names)], alone[len(names) :])
        integer, wide = (dict(sorted(zip(names, half, strict=True), key=lambda each: each[1])) for half in halves)
        return Sensitivity(integer, wide, tuple(names), raise_to, session, mixtures, data)

    def to_json(self, curve: Sequence[Point]) -> dict[str, Any]:
        layers, wide = ({name: finite(noise) for name, noise in found.items()} for found in (self.layers, self.wide))
        return {"layers_db": layers, "wide_layers_db": wide, "curve": [point.to_json() for point in curve]}

    def curve(self, labels: Sequence[int | None] = ()) -> list[Point]:
        """Measures the remaining loss when 0, 1, 2, 4 … all of the noisiest layers are in float instead of int8. If
        `raise_to` is 16x8, also measures the loss when these layers are in 16x8.
        """
        counts = [0, *(1 << index for index in range(len(self.names).bit_length())), len(self.names)]
        steps = sorted({min(count, len(self.names)) for count in counts})
        others = (0,) if self.raise_to is Raised.WIDE else ()
        return self._points([(count, floats) for count in steps for floats in dict.fromkeys((*others, count))], labels)

    def mixture(self, count: int, floats: int, labels: Sequence[int | None] = ()) -> Point:
        """Measures the mixture in which `count` of the noisiest layers are not in int8, and `floats` of these are in
        float. The others are of the type `raise_to`, or in float if they cannot run in bfloat16, or do not gain from it
        (`narrowing.objection`).
        """
        (point,) = self._points([(count, floats)], labels)
        return point

    def _points(self, mixtures: Sequence[tuple[int, int]], labels: Sequence[int | None]) -> list[Point]:
        """Measures several mixtures. Each is (count, floats), the arguments of `mixture`."""
        integers = dict.fromkeys(self.names, Precision.INTEGER)
        made = [(self._raised(*each), integers) for each in mixtures]
        return measure_mixtures(self._session, self._mixtures, self._data, made, labels)

    def _raised(self, count: int, floats: int) -> dict[str, Precision]:
        """Returns the precisions of the layers that are not in int8."""
        raised = list(self.layers)[:count]
        if self.raise_to is Raised.BFLOAT16 and floats < count:
            narrow = [name for name in raised if name in self._mixtures.narrowable][floats:]
            return {name: Precision.BFLOAT16 if name in narrow else Precision.FLOAT for name in raised}
        in_float = [name for name in self.wide if name in raised][:floats]
        others = [name for name in raised if name not in in_float]
        return {**dict.fromkeys(in_float, Precision.FLOAT), **dict.fromkeys(others, Precision.WIDE)}


def measure_mixtures(
    session: CalibrationSession,
    mixtures: Mixtures,
    data: Data,
    choices: Sequence[tuple[Mapping[str, Precision], Mapping[str, Precision]]],
    labels: Sequence[int | None],
) -> list[Point]:
    """Runs all inputs with each choice of types. A choice consists of the layers that are not in int8, and of the types
    of the other layers.
    """
    rows = [mixtures.row({}), *(mixtures.row({**others, **raised}) for raised, others in choices)]
    sums, classes = session.switched(mixtures.model, data, rows)
    known = labels if any(label is not None for label in labels) else classes[:, 0].tolist()
    return [
        Point.of(raised, float(accuracy(found.tolist(), known)["share"]), decibels(*row))
        for (raised, _), found, row in zip(choices, classes.T[1:], sums[1:], strict=True)
    ]


def decibels(signal: float, noise: float) -> float:
    """Returns 10 log10(signal / noise), for sums of squares. The result is infinite if the noise is 0."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def finite(value: float) -> float | None:
    """Returns the value for JSON: None represents infinity."""
    return value if math.isfinite(value) else None
