"""Measures where the time of a model goes: the runtime times each of its kernel calls while it runs the model.

So each call reads what the previous call has just written, and finds the same weights and activations in the cache as
in normal use. A call's time includes two readings of the clock (some 40 ns). If several threads share the call, the
time also includes starting these threads and waiting for them. The whole model is timed afterwards, including the check
of its inputs and the allocation of its outputs.

The peak is measured in the same rounds, by the loop in the artifact (`compiler.kernels.simd.peak`). For the calls and
the model the median is reported, for the peak the fastest time, because the peak is what the machine can reach.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from service.core.artifacts.buffers import aligned_empty
from service.core.artifacts.explanation import Call
from service.core.models.arrays import Array
from service.core.system.gpus import Gpu
from service.core.target import detect_host, gpu_features, parse_target
from service.core.verification.vectors import sample_inputs
from service.runtime.model import Model
from service.runtime.octet_library import cards


@dataclass(frozen=True)
class Profile:
    """How long a model takes on one machine.

    Attributes:
        machine: the name of the machine's processor or GPU.
        threads: the threads that share a call.
        rounds: the number of times that every kernel call was timed.
        model_seconds: the median of whole calls of the model.
        least_model_seconds: the time of the fastest call; much less than the median if other programs use the machine.
        peak_macs_per_s: the peak of the target's instructions on as many threads; None if the artifact has no loop.
        calls: the kernel calls, in order of execution.
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
    """Times `model` for about `seconds`, and at least `fewest_rounds` rounds, after one round to warm up.

    Args:
        inputs: the inputs of each call; random values by default.
        peak: the description of the peak loop in the artifact's coverage report.
    """
    call_inputs = sample_inputs(model.signature, 2)[1] if inputs is None else inputs  # the second sample is random
    loop = None if peak is None else _peak_loop(model, peak)
    with model.threads:
        rounds, of_peak = _time_rounds(model, call_inputs, loop, 0.8 * seconds, fewest_rounds)
        of_model = _time_calls(partial(model.run, call_inputs), 0.2 * seconds, fewest_rounds)
    medians = np.median(rounds, axis=0)
    return Profile(
        _machine(model),
        model.threads.count,
        len(rounds),
        statistics.median(of_model),
        min(of_model),
        peak["macs"] / min(of_peak) if peak is not None and of_peak else None,
        tuple(Call(symbol, float(median)) for symbol, median in zip(model.native.calls, medians, strict=True)),
    )


def _machine(model: Model) -> str:
    """Returns the name of the CPU, or of the first GPU that can run the model. In the case of a GPU, its driver was
    started in this process.
    """
    target = parse_target(model.config.target)
    if target.device == "cpu":
        return detect_host().model_name
    found = [Gpu(gpu.name, gpu.capability, gpu.memory_bytes) for gpu in cards()[0]]
    return next((gpu.name for gpu in found if target.features & gpu_features([gpu])), "")


def _time_rounds(
    model: Model, inputs: Sequence[Array], loop: Callable[[], Any] | None, seconds: float, fewest: int
) -> tuple[Array, list[float]]:
    """Returns the times of the model's kernel calls, `[rounds, calls]` seconds, and the times of the loop, which runs
    after each round.
    """
    model.time_calls(inputs)
    rounds: list[Array] = []
    of_peak: list[float] = []
    until_s = time.perf_counter() + seconds
    while len(rounds) < fewest or time.perf_counter() < until_s:
        rounds.append(model.time_calls(inputs))
        if loop is not None:
            of_peak += _time_calls(loop, 0.0, 1)
    return np.array(rounds), of_peak


def _time_calls(call: Callable[[], Any], seconds: float, fewest: int) -> list[float]:
    """Calls repeatedly, and returns the time of each call in seconds."""
    times: list[float] = []
    until_s = time.perf_counter() + seconds
    while len(times) < fewest or time.perf_counter() < until_s:
        started_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - started_s)
    return times


def _peak_loop(model: Model, peak: Mapping[str, Any]) -> Callable[[], Any] | None:
    function = model.native.symbol(peak["symbol"])
    if function is None:
        return None
    # Not zeros: multiplying zeros takes less power, so the processor's clock would be higher.
    rng = np.random.default_rng(0)
    buffers = []
    for name in ("operands", "totals"):
        buffer = aligned_empty([peak[name]["elements"]], peak[name]["dtype"])
        buffer[...] = rng.integers(0, 128, buffer.shape)
        buffers.append(buffer)

    def call() -> None:
        model.threads.team.call(model.threads.count, function, [buffer.ctypes.data for buffer in buffers])

    return call
