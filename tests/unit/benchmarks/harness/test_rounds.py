from benchmarks.harness.contestant import ContestantFailed
from benchmarks.harness.rounds import Key, Rules, take_turns
from benchmarks.harness.turn import Turn

RULES = Rules(rounds=3, seconds=0.1, quiet_cpus=0.1, repeats=2, pause_s=0.5)


class Scripted:
    """A contestant whose turns take no time, and which fails at the turn `fails_at`.

    Args:
        loads: the number of CPUs that other processes use during each turn; 0 in later turns.
    """

    def __init__(self, *loads: float, fails_at: int = -1) -> None:
        self._loads, self._fails_at, self._turns = list(loads), fails_at, 0

    def turn(self, seconds: float, limit_s: float) -> Turn:
        if self._turns == self._fails_at:
            raise ContestantFailed("it died")
        self._turns += 1
        return Turn(1, 1.0, 1.0, 1.0, self._loads.pop(0) if self._loads else 0.0)


def played(contestants: dict[Key, Scripted]) -> tuple[list[tuple[Key, int, int]], list[Key], list[float]]:
    """Returns the turns as (contestant, round, attempt), the contestants that failed, and the pauses in seconds."""
    failed: list[Key] = []
    pauses: list[float] = []
    turns = take_turns(contestants, RULES, lambda key, error: failed.append(key), pauses.append)
    return [(key, number, attempt) for key, number, attempt, _ in turns], failed, pauses


def test_every_other_round_is_in_reverse_order() -> None:
    turns, _, _ = played({("a", 1): Scripted(), ("b", 1): Scripted(), ("b", 2): Scripted()})
    assert " ".join(f"{name}{threads}" for (name, threads), _, _ in turns) == "a1 b1 b2 b2 b1 a1 a1 b1 b2"


def test_a_disturbed_turn_is_repeated_after_a_pause() -> None:
    turns, _, pauses = played({("a", 1): Scripted(0.5)})
    assert [(number, attempt) for _, number, attempt in turns] == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert pauses == [0.5]


def test_a_disturbed_turn_is_repeated_a_limited_number_of_times() -> None:
    turns, _, _ = played({("a", 1): Scripted(*[0.5] * 9)})
    assert [(number, attempt) for _, number, attempt in turns] == [(n, a) for n in range(3) for a in range(3)]


def test_a_failed_contestant_takes_no_more_turns_and_the_others_continue() -> None:
    turns, failed, _ = played({("a", 1): Scripted(fails_at=1), ("b", 1): Scripted()})
    assert failed == [("a", 1)]
    assert [name for (name, _), _, _ in turns] == ["a", "b", "b", "b"]
