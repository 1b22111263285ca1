"""A part of a run, in a separate process: a GPU that fails is lost to that process only.

    python -m benchmarks.gpu.turn model ARTIFACT DIGEST ANSWERS SECONDS
    python -m benchmarks.gpu.turn layer ARTIFACT DIGEST ANSWERS SECONDS
    python -m benchmarks.gpu.turn peak ARTIFACT DIGEST MACS
    python -m benchmarks.gpu.turn once ARTIFACT DIGEST

Prints its results as lines of JSON, each as soon as it is known.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu.samples import digest, inputs_of
from benchmarks.harness.turns import time_calls
from service.core.artifacts.buffers import aligned_empty
from service.core.digest import parse_digest
from service.runtime.loading import load
from service.runtime.model import Model

_ROUNDS, _PEAK_TURNS = 5, 20


def main() -> None:
    kind, folder, name, *rest = sys.argv[1:]
    loaded = load(Path(folder), parse_digest(name))
    kinds: dict[str, Callable[..., None]] = {"model": _model, "layer": _layer, "peak": _peak, "once": _once}
    kinds[kind](loaded, *rest)


def _model(model: Model, answers: str, seconds: str) -> None:
    """Checks the model's results before and after all measurements."""
    inputs = inputs_of(model.signature)
    _tell(right=digest(model.run(inputs)) == answers)
    outputs = [aligned_empty(spec.shape, spec.dtype) for spec in model.signature.outputs]
    model.bind(inputs, outputs)
    share_s = float(seconds) / 2 / _ROUNDS
    time_calls(model, share_s)  # lets the clocks rise
    whole_s = statistics.median(statistics.median(time_calls(model, share_s)) for _ in range(_ROUNDS))
    runs, card_s = _resident(model, share_s)
    _tell(whole_s=whole_s, card_s=card_s, runs=runs)
    _tell(right=digest(outputs) == answers)
    calls_s = model.time_calls(inputs)
    _tell(calls_s=[float(each) for each in calls_s])


def _layer(model: Model, answers: str, seconds: str) -> None:
    """Measures a layer on the GPU alone."""
    inputs = inputs_of(model.signature)
    outputs = [aligned_empty(spec.shape, spec.dtype) for spec in model.signature.outputs]
    model.bind(inputs, outputs)
    model()
    _tell(right=digest(outputs) == answers)
    runs, card_s = _resident(model, float(seconds) / _ROUNDS)
    _tell(card_s=card_s, runs=runs)
    _tell(right=digest(model.run(inputs)) == answers)


def _resident(model: Model, seconds: float) -> tuple[int, float]:
    """Returns how many successive runs take about `seconds`, and the time of one of them."""
    model.instance.run_resident(max(1, round(seconds / model.instance.run_resident(1))))  # lets the clocks rise
    runs = max(1, round(seconds / model.instance.run_resident(1)))
    return runs, statistics.median(model.instance.run_resident(runs) for _ in range(_ROUNDS))


def _peak(model: Model, macs: str) -> None:
    """Measures a peak; the fastest turn counts, because the GPU cannot exceed its limit."""
    inputs = inputs_of(model.signature)
    _tell(macs_per_s=int(macs) / min(float(model.time_calls(inputs).sum()) for _ in range(_PEAK_TURNS)))


def _once(model: Model) -> None:
    model.run(inputs_of(model.signature))


def _tell(**found: object) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
