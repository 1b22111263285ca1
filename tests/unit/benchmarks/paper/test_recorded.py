import pytest

from benchmarks.paper.recorded import measurements

_RUN = "2026-01-02 10:00 UTC; a CPU, 2 cores, target x86-64-v4+vnni; octet 0.1.0, apache-tvm 0.27.0."
_CONTEST = """\
### All contestants, int8, median ms, 2 threads pinned to cores 0, 1

| model | MMAC | limit | Octet (xnnpack) | LiteRT | ONNX Runtime |
| --- | --- | --- | --- | --- | --- |
| ResNet-50 int8 | 4089.2 | 1.77 | 8.43* | **14.27** | **26.99*** |
| an unknown model | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 |
| ResNet-18 int8 | 1814.1 | 0.799 | 2.93 |  |  |
"""
_GAIN = """\
| model | threads | Octet (float32) ms | fastest int8 mode ms | int8 is faster by | date |
| --- | --- | --- | --- | --- | --- |
| ResNet-50 int8 | 1 | 79.37 | 19.15 | **4.15x** | 2026-01-02 |
| ResNet-18 int8 | 1 | 34.18 | 8.23 | **4.15x** | 2025-12-01 |
| geometric mean | 1 |  |  | **4.05x** | 2026-01-02 |
"""


def document(contest: str, gain: str) -> str:
    sections = {"contest": contest, "gain": gain}
    return "\n".join(
        f"<!-- {name}: from here -->\n\n{text}\n<!-- {name}: to here -->" for name, text in sections.items()
    )


def test_the_times_of_a_contest_are_read_with_their_stars() -> None:
    found = list(measurements(document(f"{_RUN}\n\n{_CONTEST}", "")))
    assert {each.name: (each.values["median_ms"], each.values["mostly_disturbed"]) for each in found} == {
        ("resnet50", "octet-xnnpack", "2"): (8.43, True),
        ("resnet50", "litert", "2"): (14.27, False),
        ("resnet50", "onnxruntime", "2"): (26.99, True),
        ("resnet18", "octet-xnnpack", "2"): (2.93, False),
    }
    assert {(each.run, each.day, each.machine) for each in found} == {
        ("2026-01-02 10:00 UTC", "2026-01-02", "a CPU, x86-64-v4+vnni")
    }
    assert found[0].versions == {"octet": "0.1.0"}
    assert found[1].versions == {}


def test_rows_of_an_older_run_are_left_out() -> None:
    found = measurements(document("", f"{_RUN}\n\n{_GAIN}"))
    assert {each.name: each.values["median_ms"] for each in found} == {
        ("resnet50", "octet-fp32", "1"): 79.37,
        ("resnet50", "octet-int8", "1"): 19.15,
    }


def test_a_table_without_a_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks the line with its day, machine"):
        list(measurements(document(_CONTEST, "")))


def test_the_results_of_this_checkout_are_read() -> None:
    found = {each.name for each in measurements()}
    assert ("resnet50", "litert", "1") in found
    assert ("resnet50", "octet-fp32", "1") in found
