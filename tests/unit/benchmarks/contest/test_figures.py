from collections.abc import Sequence

import pytest

from benchmarks.contest.figures import figure_of
from benchmarks.contest.tables import everybody
from benchmarks.harness.turn import Turn, summarize
from tests.unit.benchmarks.contest.recorded import results_of, turn


@pytest.mark.parametrize(
    ("rounds", "median_ms", "disturbed"),
    [
        ([[turn(1)], [turn(3)], [turn(2)]], 2, 0),
        ([[turn(1)], [turn(9, 0.5), turn(2)], [turn(3)]], 2, 0),  # Uses the quiet attempt.
        ([[turn(1)], [turn(9, 0.5), turn(8, 0.4)]], 1, 1),  # Uses the quiet round.
        ([[turn(9, 0.5), turn(8, 0.4)], [turn(4, 0.3)]], 6, 2),  # Uses the least disturbed attempt of each round.
    ],
)
def test_a_figure_uses_the_undisturbed_turns(
    rounds: Sequence[Sequence[Turn]], median_ms: float, disturbed: int
) -> None:
    figure = figure_of(rounds, quiet_cpus=0.1)
    assert (figure.median_ms, figure.disturbed) == (median_ms, disturbed)


def test_a_figure_contains_the_lowest_and_highest_round() -> None:
    figure = figure_of([[turn(1)], [turn(4)], [turn(2)]], quiet_cpus=0.1)
    assert (figure.low_ms, figure.high_ms, figure.min_ms, figure.rounds) == (1, 4, 0.9, 3)


@pytest.mark.parametrize(("disturbed", "text"), [(0, "2.00"), (1, "2.00"), (2, "2.00*")])
def test_a_figure_that_was_mostly_disturbed_has_a_star(disturbed: int, text: str) -> None:
    rounds = [[turn(2, 0.5 if index < disturbed else 0.0)] for index in range(3)]
    assert figure_of(rounds, quiet_cpus=0.1).text == text


def test_the_limit_is_the_models_work_at_the_rate_of_the_fastest_loop() -> None:
    results = results_of({("net", "peak", 1): 1.0, ("net", "octet-xnnpack", 1): 1.8})
    assert results.limit_ms("net", 1) == pytest.approx(0.9)
    assert results.percent_of_peak("net", "octet-xnnpack", 1) == pytest.approx(50)


def test_a_model_whose_multiplications_were_not_counted_has_no_limit() -> None:
    results = results_of({("net", "peak", 1): 1.0, ("net", "octet-mxnet", 1): 1.8}, macs=0)
    assert results.limit_ms("net", 1) is None
    assert results.percent_of_peak("net", "octet-mxnet", 1) is None
    assert "| Net |  |  | 1.80 |" in everybody(results, 1)


def test_the_fastest_peer_excludes_octet_the_loop_and_float_contestants() -> None:
    medians_ms = {"peak": 1.0, "octet-reference": 2.0, "openvino-fp32": 3.0, "litert": 5.0, "openvino": 4.0}
    results = results_of({("net", name, 1): value for name, value in medians_ms.items()})
    peer = results.fastest_peer("net", 1)
    assert peer
    assert peer[0].name == "openvino"
    assert results.times_faster("net", "octet-reference", 1) == pytest.approx(2)
    assert results.times_faster("net", "octet-reference", 1, fp32=True) == pytest.approx(1.5)


def test_a_contestant_without_a_turn_has_no_figure() -> None:
    results = results_of({("net", "litert", 1): 1.0})
    assert results.figure("net", "litert", 2) is None
    assert results.percent_of_peak("net", "litert", 1) is None
    assert results.times_faster("net", "octet-xnnpack", 1) is None


def test_a_turn_is_summed_up_in_milliseconds() -> None:
    durations_s = [0.001 * value for value in (3, 1, 2, 5, 4, 6, 7, 8, 9, 10)]
    summary = summarize(durations_s, 0.25)
    assert (summary.calls, summary.other_cpus) == (10, 0.25)
    assert (summary.median_ms, summary.min_ms, summary.p90_ms) == pytest.approx((5.5, 1, 10))
