"""Tests of the replay of kernel launches. A launch that ends its process or hangs is reported once; all others run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.kernels import LAUNCHES_FILE
from benchmarks.gpu.replay import LATE, replayed, sample

_LAUNCHES = 250
Told = tuple[int, list[dict[str, Any]], str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    launches = [
        {
            "test": f"tests/test_{number % 3}.py::test_it[{number}]",
            "module": f"test_{number % 3}",
            "kernel": f"k{number}",
        }
        for number in range(_LAUNCHES)
    ]
    (tmp_path / LAUNCHES_FILE).write_text(json.dumps(launches))
    return tmp_path


def make_lines(numbers: Sequence[int], message: str = "") -> list[dict[str, Any]]:
    return [line for number in numbers for line in ({"begun": number}, {"number": number, "said": message})]


def process(fails_at: Callable[[int, list[int]], Told | None]) -> Callable[[list[str], float], Told]:
    """Returns a fake of `Process`: it completes the launches before the first for which `fails_at` returns its end."""

    def run(command: list[str], limit_s: float) -> Told:
        numbers = [int(each) for each in command[command.index("benchmarks.gpu.kernels") + 2 :]]
        for index, number in enumerate(numbers):
            ended = fails_at(number, numbers)
            if ended is not None:
                status, lines, words = ended
                return status, [*make_lines(numbers[:index]), {"begun": number}, *lines], words
        return 0, make_lines(numbers), ""

    return run


def test_all_launches_are_replayed(folder: Path) -> None:
    assert list(replayed(folder, process(lambda number, group: None), 60)) == [
        {"part": "kernels", "equal": _LAUNCHES, "different": 0, "of": _LAUNCHES}
    ]


def test_a_launch_that_ends_its_process_is_named(folder: Path) -> None:
    *named, counted = replayed(folder, process(lambda number, group: (-11, [], "dead") if number == 120 else None), 60)
    assert [(each["kernel"], each["said"]) for each in named] == [("k120", "its process ended with it: dead")]
    assert (counted["equal"], counted["different"]) == (_LAUNCHES - 1, 1)


def test_a_launch_that_hangs_is_named_and_a_late_one_is_not(folder: Path) -> None:
    late_once = {30}

    def ends(number: int, group: list[int]) -> Told | None:
        if number in late_once:
            late_once.remove(number)
            return LATE, [], "took longer"
        return (LATE, [], "took longer") if number == 70 else None

    *named, counted = replayed(folder, process(ends), 60)
    assert [each["kernel"] for each in named] == ["k70"]
    assert counted["equal"] == _LAUNCHES - 1


def test_a_process_that_makes_no_launch_is_a_failure(folder: Path) -> None:
    failure, counted = replayed(folder, lambda command, limit_s: (1, [], "no module"), 60)
    assert (failure["part"], failure["said"]) == ("failure", "no module")
    assert (counted["equal"], counted["different"], counted["of"]) == (0, 0, _LAUNCHES)


def test_the_sample_contains_launches_of_each_module(folder: Path) -> None:
    assert sample(folder) == [0, 1, 2]
