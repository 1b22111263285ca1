from benchmarks.paper.figures import Figures, days, text, timed
from tests.unit.benchmarks.paper.samples import measurement, time

_OLD, _NEW = "2026-01-02", "2026-03-04"


def test_a_pair_comes_from_one_run() -> None:
    figures = Figures([time("net", "octet-fp32", 8.0, _OLD), time("net", "octet-onnx", 2.0, _NEW)])
    assert figures.own_pair("net", 1) is None
    real, quantized = time("net", "octet-fp32", 9.0, _NEW), time("net", "octet-onnx", 2.0, _NEW)
    assert Figures([time("net", "octet-fp32", 8.0, _OLD), real, quantized]).own_pair("net", 1) == (real, quantized)


def test_of_several_forms_the_fastest_counts() -> None:
    real, quantized = time("net", "octet-fp32-tflite", 7.0), time("net", "octet-mxnet", 1.0)
    figures = Figures([time("net", "octet-fp32", 8.0), real, time("net", "octet-onnx", 2.0), quantized])
    assert figures.own_pair("net", 1) == (real, quantized)


def test_an_older_run_without_disturbance_counts_before_a_disturbed_one() -> None:
    quiet = (time("net", "octet-onnx", 2.0, _OLD), time("net", "litert", 3.0, _OLD))
    disturbed = (time("net", "octet-onnx", 9.0, _NEW, disturbed=True), time("net", "litert", 3.0, _NEW))
    assert Figures([*disturbed, *quiet]).beside("net", ("litert",), 1) == quiet
    assert Figures(disturbed).beside("net", ("litert",), 1) == disturbed


def test_a_row_needs_octet_and_a_peer() -> None:
    assert Figures([time("net", "octet-onnx", 2.0)]).beside("net", ("litert",), 1) is None
    assert Figures([time("net", "litert", 2.0)]).beside("net", ("litert",), 1) is None


def test_the_two_forms_of_a_model_come_from_one_run() -> None:
    times = (time("one", "litert", 3.0), time("two", "litert", 2.0))
    assert Figures(times).two_models(("one", "two"), "litert", 1) == times
    assert Figures([times[0], time("two", "litert", 2.0, _NEW)]).two_models(("one", "two"), "litert", 1) is None


def test_a_disturbed_time_is_marked() -> None:
    times = [time("net", "litert", 3.0), time("net", "mxnet", 4.0, disturbed=True)]
    assert list(map(text, times)) == ["3.00", "4.00*"]
    assert timed(times) == ["a CPU, x86-64-v4+vnni", f"{_OLD}, beside other load"]
    assert timed(times[:1]) == ["a CPU, x86-64-v4+vnni", _OLD]
    assert text(None) == ""


def test_the_days_of_a_row_are_the_first_and_the_last() -> None:
    rows = [measurement("targets", day, day=day) for day in (_NEW, "2026-02-03", _OLD)]
    assert days([*rows, None]) == f"{_OLD} to {_NEW}"
    assert days(rows[:1]) == _NEW


def test_the_latest_measurement_of_a_row_counts() -> None:
    newer = measurement("memory", "net", day=_NEW, weights=1)
    figures = Figures([newer, measurement("memory", "net", day=_OLD, weights=2)])
    assert figures.get("memory", "net") == newer
    assert figures.of("memory") == [newer]
    assert figures.runs == {newer.run: [newer]}
