from collections.abc import Sequence

import pytest

from benchmarks.harness.turns import COLUMNS, Timings, differences_ms, take_turns, time_warm_calls


class Scripted:
    """A contender whose turns take no time. Each turn appends its name to `turns`."""

    def __init__(self, name: str, turns: list[str], milliseconds: float) -> None:
        self.name, self.turns, self.milliseconds = name, turns, milliseconds
        self.pids: Sequence[int] = ()

    def durations_s(self, seconds: float) -> list[float]:
        self.turns.append(self.name)
        return [self.milliseconds / 1e3] * 3


def test_every_other_round_is_in_reverse_order() -> None:
    turns: list[str] = []
    take_turns({name: Scripted(name, turns, 1) for name in "abc"}, rounds=3, seconds=0)
    assert "".join(turns) == "abccbaabc"


def test_differences_are_taken_within_a_round() -> None:
    fast = Timings(rounds=[[0.001, 0.001], [0.003]])
    slow = Timings(rounds=[[0.002, 0.004, 0.002], [0.008]])
    assert differences_ms(slow, fast) == pytest.approx([1, 5])


def test_a_slow_call_is_still_timed_five_times() -> None:
    assert len(time_warm_calls(lambda: None, seconds=0)) == 5


def test_a_row_has_a_cell_for_each_column() -> None:
    cells = Timings(rounds=[[0.001], [0.002, 0.003]], other_cpus=[0.0, 0.5]).cells()
    assert len(cells) == len(COLUMNS)
    assert cells == ["2.000", "1.000 to 2.500", "3", "0.25"]
