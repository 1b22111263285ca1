"""Where the time of a model goes: each kernel by itself, with the memory that it has in the model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from service.runtime.model import Array, Model

_REPEATS_S = 0.02
_FEWEST, _MOST = 5, 2000


@dataclass(frozen=True)
class CallTime:
    """One call in a model's order of execution.

    Attributes:
        symbol: the function that was called.
        seconds: median over many calls, with what calling from Python costs (about a microsecond).
    """

    symbol: str
    seconds: float


def profile(model: Model, inputs: Sequence[Array]) -> list[CallTime]:
    """The time of every call that `model` makes for `inputs`."""
    return [CallTime(symbol, _median_s(partial(function, *args))) for symbol, function, args in _calls(model, inputs)]


def _calls(model: Model, inputs: Sequence[Array]) -> list[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """What the virtual machine calls, with its operands; it keeps them alive."""
    calls: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []

    def note(function: Any, symbol: str, before: bool, _result: Any, *args: Any) -> None:
        if before and not symbol.startswith("vm.builtin."):
            calls.append((symbol, function, args))

    instance = model.clone()
    instance.instrument(note)
    instance.run(inputs)
    return calls


def _median_s(call: Callable[[], Any]) -> float:
    call()
    taken: list[float] = []
    until = time.perf_counter() + _REPEATS_S
    while len(taken) < _FEWEST or (time.perf_counter() < until and len(taken) < _MOST):
        started_s = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started_s)
    return statistics.median(taken)
