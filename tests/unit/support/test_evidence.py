from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.kept import today
from service.core.models.facts import Scheme
from tests.support import evidence
from tests.support.control_plane import FACTS
from tests.support.evidence import Comparisons, Ledger, Noted, function_of, merged


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    ledger = Ledger()
    monkeypatch.setattr(evidence, "LEDGER", ledger)
    return ledger


def outputs(*values: int) -> list[list[np.ndarray]]:
    return [[np.array(values, np.int8)]]


def test_equal_outputs_are_recorded(ledger: Ledger) -> None:
    evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 2))
    assert str(*ledger.schemes.values()) == "equal (1 model)"
    assert f"| TFLite | int8 per-axis, symmetric | float | equal (1 model) | {today()} |" in evidence.tables(ledger)


def test_unequal_outputs_are_recorded_and_fail(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="1 of 2 values differ, by at most 2"):
        evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 4), steps=1)
    evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2, 3, 4), outputs(1, 2, 3, 4))
    (seen,) = ledger.schemes.values()
    assert seen == Comparisons(2, 6, 1, 2.0, {today()})
    assert str(seen) == "83.33 % equal, off by at most 2 (2 models)"


def test_a_step_may_be_allowed(ledger: Ledger) -> None:
    evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 3), steps=1)
    with pytest.raises(AssertionError):
        evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 3))


def test_an_empty_comparison_fails(ledger: Ledger) -> None:
    with pytest.raises(AssertionError):
        evidence.compare_compiled(FACTS, "x86-64-v3", [], [])


def test_outputs_of_other_types_fail() -> None:
    with pytest.raises(AssertionError):
        evidence.differences(outputs(1), [[np.array([1], np.uint8)]])


def test_nan_equals_nan() -> None:
    gaps = [[np.array([np.nan, 1.0, np.nan], np.float32)]], [[np.array([np.nan, 1.0, 2.0], np.float32)]]
    assert evidence.differences(*gaps)[:2] == (3, 1)


def test_accuracy(ledger: Ledger) -> None:
    theirs = np.array([[9, 1, 0, 0, 0, 0], [1, 2, 3, 4, 5, 0]], np.uint8)
    ours = np.array([[9, 1, 0, 0, 0, 0], [1, 2, 3, 4, 4, 0]], np.uint8)
    evidence.note_accuracy("net", "tflite", "xnnpack", theirs, ours, np.array([0, 3]))
    assert ledger.accuracies["net", "tflite", "xnnpack"] == (
        "2",
        "50 / 100 %",
        "100 / 100 %",
        "50 %",
        "91.66 %",
        today(),
    )


def test_a_scheme_in_words() -> None:
    assert evidence.scheme_of(None) == "float"
    assert evidence.scheme_of(Scheme(("int8",), ("per-axis",), symmetric=True)) == "int8 per-axis, symmetric"


def noted(operator: str, models: int = 1) -> Noted:
    found = Noted()
    found.operators[operator, "tflite", "xnnpack"] = Comparisons(models, 10, 0, 0.0, {"2026-01-02"})
    return found


def ledger_of(**tests: Noted) -> Ledger:
    ledger = Ledger()
    ledger.tests.update(tests)
    return ledger


def test_a_share_of_less_than_all_is_not_100_percent() -> None:
    assert str(Comparisons(1, 10**6, 1, 1.0)).startswith("99.99 % equal")


def test_results_of_all_cases_are_recorded_for_the_test_function(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    for case in ("tests/a.py::test_one[x] (call)", "tests/a.py::test_one[y[0]] (setup)", "tests/a.py::test_two (call)"):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", case)
        ledger.now.schemes["int8", "int8", "tflite", "x86-64-v3"].add(1, 0, 0.0)
    assert list(ledger.tests) == ["tests/a.py::test_one", "tests/a.py::test_two"]
    assert str(*ledger.schemes.values()) == "equal (3 models)"


def test_a_run_that_skipped_a_test_keeps_its_earlier_results() -> None:
    before = ledger_of(ran=noted("add"), skipped=noted("softmax", models=7), removed=noted("sub"))
    seen = ledger_of(ran=noted("mul"), skipped=noted("softmax"))
    after = merged(before, seen, complete={"ran"}, existing={"ran", "skipped"})
    found = {operator: str(each) for (operator, *_), each in after.operators.items()}
    assert found == {"add": "equal (1 model)", "mul": "equal (1 model)", "softmax": "equal (7 models)"}


def test_a_new_test_with_skipped_cases_is_shown() -> None:
    assert merged(Ledger(), ledger_of(new=noted("add")), complete=(), existing={"new"}).operators


def test_results_of_a_complete_test_replace_the_earlier_ones() -> None:
    seen = ledger_of(ran=noted("add", models=2))
    assert merged(ledger_of(ran=noted("add", models=7)), seen, complete={"ran"}, existing={"ran"}) == seen


def test_a_record_survives_a_round_trip(ledger: Ledger) -> None:
    evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 2))
    evidence.note_accuracy("net", "tflite", "xnnpack", np.eye(6), np.eye(6), None)
    ledger.now.operators["add", "onnx", "onnxruntime"].add(3, 1, np.inf)
    read = Ledger.from_json(ledger.to_json())
    assert (read, evidence.tables(read)) == (ledger, evidence.tables(ledger))


def test_a_target_that_this_machine_lacks_keeps_its_results() -> None:
    before, seen = Noted(), Noted()
    for target in ("x86-64-v3", "x86-64-v4"):
        before.schemes["int8", "int8", "tflite", target] = Comparisons(4, 10, 0, 0.0, {"2026-01-02"})
    seen.schemes["int8", "int8", "tflite", "x86-64-v3"] = Comparisons(5, 10, 0, 0.0, {"2026-03-04"})
    after = merged(ledger_of(one=before), ledger_of(one=seen), complete={"one"}, existing={"one"})
    row = "| TFLite | int8 | int8 | equal (5 models) | equal (4 models) | 2026-01-02 to 2026-03-04 |"
    assert row in evidence.tables(after)


def test_a_test_that_no_longer_exists_has_no_results() -> None:
    assert not merged(ledger_of(gone=noted("add")), Ledger(), complete=(), existing=()).tests


def test_a_function_is_named_without_its_case() -> None:
    assert function_of("tests/a.py::TestIt::test_one[x y-z] (call)") == "tests/a.py::TestIt::test_one"
