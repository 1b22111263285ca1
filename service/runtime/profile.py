"""Where the time of a model goes: each of its calls by itself, at its place in the model.

The virtual machine's calls are captured once, with their operands, which keeps all the buffers of that run alive. Then
they are replayed in order, again and again, and each is timed: so each reads what the one before it has just written,
and weights and activations lie in the cache, or do not, as when the model runs. Nothing is subtracted: a call's time
includes what it costs to call it from Python (about a microsecond) and, on several threads, to start and await them.
The allocations and views that the machine makes in between are left out; the whole model, timed afterwards (in between,
its buffers and those of the replay would take each other's place in the cache), has them, and the check of its inputs
and the copy of its outputs besides.

The peak is measured in the same rounds, by the loop that the artifact carries (`compiler.kernels.simd.peak`). Of the
calls and the model the median counts, of the peak the fastest: it is what can be had.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm_ffi

from service.core.buffers import aligned_empty
from service.core.explanation import Call
from service.core.target import detect_host
from service.core.vectors import sample_inputs
from service.runtime.model import Array, Model


@dataclass(frozen=True)
class Profile:
    """How long a model takes on one machine.

    Attributes:
        machine: its processor.
        threads: that share a call.
        rounds: how often everything was timed.
        model_seconds: the median of whole calls of the model.
        least_model_seconds: the fastest of them; much less than the median where others use the machine.
        peak_macs_per_s: of the target's instructions on as many threads; None where the artifact has no loop.
        calls: in order of execution.
    """

    machine: str
    threads: int
    rounds: int
    model_seconds: float
    least_model_seconds: float
    peak_macs_per_s: float | None
    calls: tuple[Call, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "threads": self.threads,
            "rounds": self.rounds,
            "model_seconds": self.model_seconds,
            "least_model_seconds": self.least_model_seconds,
            "peak_macs_per_s": self.peak_macs_per_s,
            "calls": [{"symbol": call.symbol, "seconds": call.seconds} for call in self.calls],
        }


def profile(
    model: Model,
    inputs: Sequence[Array] | None = None,
    *,
    peak: Mapping[str, Any] | None = None,
    seconds: float = 1.0,
    fewest_rounds: int = 5,
) -> Profile:
    """Times `model` for about `seconds`, and at least so many rounds, after one to warm up.

    Args:
        inputs: what it is asked; random values by default.
        peak: what the artifact's coverage report says of its loop.
    """
    asked = sample_inputs(model.signature, 2)[1] if inputs is None else inputs  # the second is random
    loop = None if peak is None else _peak_loop(model, peak)
    calls = captured(model, asked)
    timed: list[Callable[[], Any]] = [partial(function, *operands) for _, function, operands in calls]
    with model.threads:
        by_call = _timed([*timed, *([loop] if loop else [])], 0.8 * seconds, fewest_rounds)
        (of_model,) = _timed([partial(model.run, asked)], 0.2 * seconds, fewest_rounds)
    return Profile(
        detect_host().model_name,
        model.threads.count,
        len(by_call[0]) if by_call else 0,
        statistics.median(of_model),
        min(of_model),
        peak["macs"] / min(by_call[-1]) if peak is not None and loop else None,
        tuple(Call(symbol, statistics.median(taken)) for (symbol, *_), taken in zip(calls, by_call, strict=False)),
    )


def captured(model: Model, inputs: Sequence[Array]) -> list[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """What `model` calls for `inputs`, in order: name, function, operands. Called again in that order, they compute the
    model again."""
    calls: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []

    def note(function: Any, symbol: str, before: bool, _result: Any, *operands: Any) -> None:
        if before and not symbol.startswith("vm.builtin."):
            calls.append((symbol, function, operands))

    instance = model.clone()
    instance.instrument(note)
    instance.run(inputs)
    return calls


def _timed(calls: Sequence[Callable[[], Any]], seconds: float, fewest_rounds: int) -> list[list[float]]:
    """How long each took, in seconds, in every round of all of them; after one to warm up."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    until_s = time.perf_counter() + seconds
    while calls and (len(taken[0]) < fewest_rounds or time.perf_counter() < until_s):
        for call, durations in zip(calls, taken, strict=True):
            started_s = time.perf_counter()
            call()
            durations.append(time.perf_counter() - started_s)
    return taken


def _peak_loop(model: Model, peak: Mapping[str, Any]) -> Callable[[], Any] | None:
    function = model.function(peak["symbol"])
    if function is None:
        return None
    rng = np.random.default_rng(0)  # zeros would take less power than numbers, and leave the clock higher
    buffers = []
    for name in ("operands", "totals"):
        buffer = aligned_empty([peak[name]["elements"]], peak[name]["dtype"])
        buffer[...] = rng.integers(0, 128, buffer.shape)
        buffers.append(tvm_ffi.from_dlpack(buffer))
    return partial(function, *buffers)
