"""Contestants take turns. A turn that other programs disturbed is repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.harness.contestant import ContestantFailed, ContestantProcess
from benchmarks.harness.frameworks import Job
from benchmarks.harness.turn import Turn
from benchmarks.harness.turns import alternate

Key = tuple[str, int]  # a contestant's name, and its threads


class TakesTurns(Protocol):
    def turn(self, seconds: float, limit_s: float) -> Turn: ...


@dataclass(frozen=True)
class Rules:
    """The rules for turns.

    Attributes:
        seconds: duration of a turn.
        quiet_cpus: a turn during which other processes kept more CPUs busy was disturbed.
        repeats: how often a disturbed turn is repeated at most.
        pause_s: the pause before a repetition.
        load_limit_s, limit_s: time limits for loading a model, and for a turn.
    """

    rounds: int = 7
    seconds: float = 0.3
    quiet_cpus: float = 0.1
    repeats: int = 3
    pause_s: float = 0.3
    load_limit_s: float = 300.0
    limit_s: float = 120.0


@dataclass(frozen=True)
class ProcessSpec:
    """A contestant's process: the interpreter of its environment, and the model that it loads."""

    python: Path
    job: Job


def play(
    specs: Mapping[Key, ProcessSpec],
    log: Path,
    rules: Rules,
    failed: Callable[[Key, ContestantFailed], None],
    loaded: Callable[[Key, ContestantProcess], None] = lambda key, process: None,
) -> Iterator[tuple[Key, int, int, Turn]]:
    """Starts all contestants, and lets them take turns, as `take_turns` does. Reports each that has loaded its model,
    and each that failed.
    """
    with ExitStack() as stack:
        playing: dict[Key, ContestantProcess] = {}
        for key, spec in specs.items():
            try:
                process = ContestantProcess(spec.python, spec.job, log, rules.load_limit_s)
            except ContestantFailed as error:
                failed(key, error)
            else:
                playing[key] = stack.enter_context(process)
                loaded(key, process)
        yield from take_turns(playing, rules, failed)


def take_turns(
    contestants: Mapping[Key, TakesTurns],
    rules: Rules,
    failed: Callable[[Key, ContestantFailed], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[Key, int, int, Turn]]:
    """Yields (contestant, round, attempt, turn) as they happen. A contestant that fails is reported, and takes no more
    turns.
    """
    playing = dict(contestants)
    for number, key in alternate(contestants, rules.rounds):
        if key not in playing:
            continue
        try:
            for attempt in range(1 + rules.repeats):
                if attempt:
                    sleep(rules.pause_s)
                turn = playing[key].turn(rules.seconds, rules.limit_s)
                yield key, number, attempt, turn
                if turn.other_cpus <= rules.quiet_cpus:
                    break
        except ContestantFailed as error:
            del playing[key]
            failed(key, error)
