"""Tests of the options and the output of `octet bench`."""

from __future__ import annotations

import os
from typing import Any

import pytest
import typer

from service.cli.commands.local.bench import counts_of, show, sparkline
from service.cli.output import Output


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_the_default_counts_are_powers_of_two_and_all_cores(
    cores: int, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert counts_of(None) == counts


def test_requested_counts_are_used() -> None:
    assert counts_of("4,1") == [4, 1]


@pytest.mark.parametrize("threads", ["", "two", "0", "1,-1", "1,,2"])
def test_an_invalid_list_is_refused(threads: str) -> None:
    with pytest.raises(typer.BadParameter, match="--threads"):
        counts_of(threads)


def test_values_above_zero_are_visible() -> None:
    assert sparkline([0, 1, 500, 1000]) == " ▁▄█"
    assert sparkline([0, 0]) == "  "


def test_a_row_for_each_number_of_threads(capsys: pytest.CaptureFixture[str]) -> None:
    row: dict[str, Any] = {
        "artifact": "sha256:0",
        "threads": 2,
        "cores": [0, 3],
        "batch": 1,
        "calls": 1234,
        "per_s": 1250.0,
        **{f"{time}_s": 0.001 * number for number, time in enumerate(("min", "p50", "p90", "p99", "max"), 1)},
        "histogram": {"edges_s": [0.001, 0.002, 0.004], "calls": [1000, 234]},
    }
    show(Output(as_json=False), [row], "a machine")
    shown = next(line for line in capsys.readouterr().out.splitlines() if "1,234" in line)
    times = "1.00 ms 2.00 ms 3.00 ms 4.00 ms 5.00 ms"
    assert " ".join(shown.split()) == f"2 1 1,234 {times} 1.25 k █▂ 0, 3"
