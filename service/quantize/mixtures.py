"""Chooses the layers that run in a more precise type than int8."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from service.core.builds.quantization import QuantizationOptions
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.quantization import Calibration
from service.quantize.search import budgeting
from service.quantize.search.sensitivity import Point
from service.quantize.search.timing import Stopwatch, within
from service.quantize.steps.options import Options


def is_searched(requested: QuantizationOptions) -> bool:
    """Returns true if the losses of layers are measured."""
    return requested.sensitivity or requested.budget is not None or requested.latency_budget is not None


def choose_mixture(
    calibration: Calibration,
    session: CalibrationSession,
    options: Options,
    requested: QuantizationOptions,
    labels: Sequence[int | None],
) -> tuple[Options, dict[str, Any]]:
    """Chooses the layers to raise to a more precise type. Returns `options` with these layers, and the report's fields
    about mixtures.
    """
    ranked = calibration.sensitivity(options)
    enough: Point | None = None
    curve = ranked.curve(labels)
    if requested.budget is not None:
        enough, curve = budgeting.within(requested.budget, curve, partial(ranked.mixture, labels=labels))

    def raised(point: Point) -> Options:
        return options.raising(point.kept, point.wide, point.bfloat16)

    costs = {}
    if requested.latency_budget is not None:
        watch = Stopwatch(session, lambda point: calibration.quantize(raised(point)).file, curve[0])
        found = within(ranked, watch, curve, requested.latency_budget, requested.budget, labels)
        enough, curve, costs = found.point, found.tried, {"latency_budget": found.to_json(requested.latency_budget)}
    return options if enough is None else raised(enough), {"sensitivity": {**ranked.to_json(curve), **costs}}
