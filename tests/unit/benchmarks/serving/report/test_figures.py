"""Tests of the figures that are computed from responses: percentiles, arrivals, recovery, slopes; and of the report."""

import math

import pytest

from benchmarks.serving.clients.load import Answer, Load, Phase, percentile
from benchmarks.serving.contestants import BARE, FLOOR, OCTET, SERVED, peers_for
from benchmarks.serving.parts.overload import recovery_s
from benchmarks.serving.records import Entry, Fairness, Overhead, Overload, Run, Soak, Turn
from benchmarks.serving.report.figures import Results
from benchmarks.serving.report.text import render
from benchmarks.serving.soak.watching import growth_of, slope_of

MODEL = "mobilenet_v2"
RUN = Run("2026-01-01 00:00 UTC", "a CPU", "x86-64-v4+vnni", 0, 1, "xnnpack", 3, 1.5, 0.7, {"octet": "0.1.0"})


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, percent) for percent in (0, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([7.0], 99) == 7
    assert math.isnan(percentile([], 50))


def test_arrivals_are_constant_in_each_phase() -> None:
    load = Load("", 0, "", phases=[Phase(2, 1.5), Phase(10, 0.2)])
    assert list(load.arrivals_s()) == pytest.approx([0, 0.5, 1.0, 1.5, 1.6])


def test_recovery_is_the_first_of_ten_successive_probes_in_time() -> None:
    late = {0, 1, 5}
    probes = [Answer(0.1 * at, 0.5 if at in late else 0.01, 200, True) for at in range(20)]
    assert recovery_s(probes, 0.02) == pytest.approx(0.6)
    assert recovery_s(probes[:15], 0.02) == math.inf


def test_a_refused_or_wrong_probe_is_not_a_recovery() -> None:
    answers = [Answer(0.0, 0.01, 429, True), Answer(0.1, 0.01, 200, False)]
    probes = answers + [Answer(0.2 + at, 0.01, 200, True) for at in range(10)]
    assert recovery_s(probes, 0.02) == pytest.approx(0.2)


def test_the_slope_of_an_exact_line_is_found() -> None:
    slope, error = slope_of([3 + 0.5 * at for at in range(10)], 0.25)
    assert slope == pytest.approx(2.0)
    assert error == pytest.approx(0.0, abs=1e-9)
    assert all(map(math.isnan, slope_of([1.0, 2.0], 1.0)))


def test_growth_is_the_slope_of_the_second_half() -> None:
    settled = [float(at) for at in range(60)] + [60.0, 61.0] * 30
    slope, low, high = growth_of(settled, 1.0)
    assert low <= 0 <= high
    leaking = [100 + 0.25 * at + at % 2 for at in range(120)]
    slope, low, high = growth_of(leaking, 1.0)
    assert 0.24 < low <= slope <= high < 0.26
    assert all(map(math.isnan, growth_of(leaking[:22], 1.0)))


def turn(contestant: str, arrivals: str, per_s: float, latencies_ms: list[float] | None = None, lost: int = 0) -> Turn:
    statuses = {"200": 10} | ({"lost": lost} if lost else {})
    found = latencies_ms or []
    return Turn(MODEL, contestant, 0, arrivals, 0.7 * per_s, 8, "raw", 1, per_s, 1, 2, statuses, 0, 0.02, found)


def results() -> Results:
    found = Results()
    found.add_all([
        RUN,
        Overhead(MODEL, BARE, "bare call", "none", 150_528, [1.0, 2.0, 1.1], 9, 0.0),
        Overhead(MODEL, FLOOR, "echo", "raw", 150_528, [1.06, 1.07, 1.05], 9, 0.0, "polling", 1.02),
        Overhead(MODEL, OCTET, "REST predict", "binary", 150_528, [1.1, 2.12, 1.23], 9, 0.0),
        turn(BARE, "calls", 500.0),
        turn(OCTET, "closed", 420.0),
        turn(OCTET, "open", 420.0, [2.0] * 98 + [5.0] * 2),
        turn("ray", "closed", 100.0, lost=3),
        turn("bentoml", "closed", 200.0),
        turn("bentoml", "open", 200.0, [4.0] * 98 + [9.0] * 2),
        Entry(MODEL, OCTET, "Octet", 120, 100),
        Entry(MODEL, "ray", "Ray Serve, OpenVINO", 1200, 900),
        Entry(MODEL, "bentoml", "BentoML, OpenVINO", 220, 200),
        Entry(MODEL, "mlserver", "MLServer, OpenVINO", error="it ended\nwith 1"),
        Overload("resnet50", "binary", 3, 60, 50.0, 47.5, {"200": 1, "429": 2}, 0, 1, 2, 3, 12.5, 0.4, [1, 3, 2], 0.0),
        Fairness("digits", "resnet50", 2, 200, 8, 20, 25.0, [0.1] * 9, [0.2] * 9, 40, 39, {"200": 9}, 0, 0.1),
        Soak(["resnet50"], 30, 9.0, {"200": 7}, 1, {"read": {"200": 5, "503": 2}}, 2, 3, ["?"], 0, 2.0,
             {"server": [90, 100]}, {"server": [0.2, 0.1, 0.3]}, 0.0),
    ])  # fmt: skip
    return found


def test_overhead_is_the_median_of_differences_within_a_round() -> None:
    (row,) = [line for line in render(results()).splitlines() if line.startswith("| REST predict")]
    assert "| blocking |" in row
    assert "| **120** | 100 to 130 | 9 |" in row


def test_the_computation_of_the_floor_is_not_overhead() -> None:
    (row,) = [line for line in render(results()).splitlines() if line.startswith("| echo")]
    assert "| polling |" in row
    assert "| **40** | 30 to 50 | 9 |" in row


def test_the_report_compares_octet_with_the_best_peer() -> None:
    text = render(results())
    assert "Octet serves 84.0% of that." in text
    assert "The best peer is BentoML, OpenVINO: Octet serves 2.10 × as much" in text  # noqa: RUF001
    assert "with a p99 of 5.00 ms beside 9.00 ms" in text
    assert "takes 200 MiB (PSS; BentoML, OpenVINO), Octet 100 MiB" in text


def test_the_report_contains_failures_and_wrong_responses() -> None:
    text = render(results())
    assert "| mobilenet_v2 | MLServer, OpenVINO | it ended with 1 |" in text
    assert "| 3 lost |" in text
    assert "**95.0%**" in text


def test_the_report_contains_the_results_of_the_soak() -> None:
    text = render(results())
    assert "| read | 5 × 200, 2 × 503 |" in text  # noqa: RUF001
    assert "| 5xx, but for planned ones | **2** |" in text
    assert "| 90 to 100 MiB; second half **+0.200** MiB/min (+0.100 to +0.300) |" in text


def test_the_plot_has_each_server_of_a_model_once() -> None:
    for served in SERVED:
        names = [peer.name for peer in peers_for(served)]
        assert len(set(names)) == len(names)
        assert {"mlserver", "bentoml", "ray", "triton"} < set(names)
        assert all(peer.file in served.row.files for peer in peers_for(served))


def test_the_report_compares_a_light_model_alone_and_beside_a_heavy_one() -> None:
    (row,) = [line for line in render(results()).splitlines() if line.startswith("| digits, 200 /s")]
    assert "| 0.10, **0.20** | 0.10, **0.20** | 25.00 | 40.0, 39.0 |" in row
