"""Tests the order of service in a queue, with a clock that the tests control."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.native import built_program

Run = Callable[..., list[list[int]]]


@pytest.fixture(scope="module")
def program() -> Path:
    return built_program("waiting_line_probe")


@pytest.fixture
def run(program: Path) -> Run:
    """Runs orders with `waiting_line_probe.cc` and returns what they print."""

    def run(*orders: str) -> list[list[int]]:
        output = subprocess.run([program], input="\n".join(orders), capture_output=True, text=True, check=True)
        return [[int(number) for number in line.split()] for line in output.stdout.splitlines()]

    return run


def test_levels_are_served_in_order_and_each_by_arrival(run: Run) -> None:
    pushes = [f"push {level} 1e9" for level in (2, 3, 1, 2, 1)]
    assert run(*pushes, "order 0", "order 1") == [[2, 4, 0, 3, 1], [0, 2, 4, 3, 1]]


def test_requests_keep_their_order_while_all_can_be_in_time(run: Run) -> None:
    assert run("pace 0 1 1", "push 2 0", "push 2 1", "push 2 2", "order 0", "hopeless") == [[0, 1, 2], []]


def test_once_a_request_cannot_be_in_time_the_newest_are_served_first(run: Run) -> None:
    pushes = ["push 2 5"] * 7  # one request starts per second, so six of them begin before their deadlines
    assert run("pace 0 1 1", *pushes, "order 0") == [[6, 5, 4, 3, 2, 1, 0]]


def test_a_hopeless_request_is_refused_at_once(run: Run) -> None:
    pushes = ["push 2 5"] * 8
    hopeless, rest, after, later = run(
        "pace 0 1 1", *pushes, "hopeless", "order 0", "pace 2 1 1", "hopeless", "pace 4.5 1 1", "hopeless"
    )
    assert hopeless == [0, 1]  # the two oldest requests cannot be in time, because six newer requests precede them
    assert rest == [7, 6, 5, 4, 3, 2]
    assert after == [2, 3]
    assert later == [4, 5, 6]


def test_a_request_past_its_deadline_is_refused_in_any_order(run: Run) -> None:
    assert run("pace 0 1 1", "push 2 1", "push 2 2", "pace 1.5 1 1", "hopeless", "order 0") == [[0], [1]]


def test_two_instances_serve_twice_as_many_in_time(run: Run) -> None:
    assert run("pace 0 1 2", *["push 2 2"] * 5, "order 0") == [[0, 1, 2, 3, 4]]
    assert run("pace 0 1 2", *["push 2 2"] * 6, "order 0") == [[5, 4, 3, 2, 1, 0]]


def test_without_deadlines_no_request_is_overtaken_or_refused(run: Run) -> None:
    assert run("pace 0 9 1", *["push 2 1e9"] * 3, "hopeless", "order 0") == [[], [0, 1, 2]]


def test_an_empty_level_starts_anew(run: Run) -> None:
    orders = ["pace 0 1 1", *["push 2 0"] * 2, "erase 1", "erase 0", "push 2 9", "push 2 9", "order 0"]
    assert run(*orders) == [[2, 3]]


def test_a_level_counts_those_above_it_and_not_those_below(run: Run) -> None:
    above = ["pace 0 1 1", *["push 1 1e9"] * 3, "push 2 2", "hopeless", "order 0"]
    assert run(*above) == [[3], [0, 1, 2]]
    below = ["pace 0 1 1", *["push 3 1e9"] * 3, "push 2 2", "hopeless", "order 0"]
    assert run(*below) == [[], [3, 0, 1, 2]]


def test_a_late_level_does_not_reverse_another(run: Run) -> None:
    orders = ["pace 0 1 1", "push 1 9", "push 1 9", "push 3 3", "push 3 3", "order 0"]
    assert run(*orders) == [[0, 1, 2, 3]]
    assert run(*orders[:-1], "push 3 3", "order 0") == [[0, 1, 4, 3, 2]]


def test_the_oldest_has_its_turn_among_the_newest(run: Run) -> None:
    assert run("pace 0 1 1", *["push 2 1"] * 3, "order 1") == [[0, 2, 1]]
