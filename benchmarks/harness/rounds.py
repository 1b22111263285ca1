"""Takes turns: A B C, then C B A, and so on, so that a change of the machine affects all contestants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.harness.contestant import ContestantFailed
from benchmarks.harness.turn import Turn

Key = tuple[str, int]  # a contestant's name, and its threads


class TakesTurns(Protocol):
    def turn(self, seconds: float, limit_s: float) -> Turn: ...


@dataclass(frozen=True)
class Rules:
    """The rules for turns.

    seconds: duration of a turn.
        seconds: of a turn.
        quiet_cpus: a turn during which other processes kept more CPUs busy was disturbed.
        repeats: how often a disturbed turn is repeated at most.
        pause_s: the pause before a repetition.
    """

    rounds: int = 7
    seconds: float = 0.3
    quiet_cpus: float = 0.1
    repeats: int = 3
    pause_s: float = 0.3
    limit_s: float = 120.0


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
    for number in range(rules.rounds):
        for key in list(playing)[:: 1 if number % 2 == 0 else -1]:
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
