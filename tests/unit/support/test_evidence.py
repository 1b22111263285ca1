from __future__ import annotations

import numpy as np
import pytest

from service.core.facts import Scheme
from tests.support import evidence
from tests.support.control_plane import FACTS
from tests.support.evidence import Comparisons, Ledger


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    ledger = Ledger()
    monkeypatch.setattr(evidence, "LEDGER", ledger)
    return ledger


def outputs(*values: int) -> list[list[np.ndarray]]:
    return [[np.array(values, np.int8)]]


def test_equal_outputs_are_noted_as_such(ledger: Ledger) -> None:
    evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 2))
    assert str(*ledger.schemes.values()) == "equal (1 model)"
    assert "| TFLite | int8 per-axis, symmetric | float | equal (1 model) |" in evidence.tables(ledger)


def test_unequal_outputs_are_noted_and_fail(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="1 of 2 values differ, by at most 2"):
        evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 4), steps=1)
    evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2, 3, 4), outputs(1, 2, 3, 4))
    (seen,) = ledger.schemes.values()
    assert seen == Comparisons(2, 6, 1, 2.0)
    assert str(seen) == "83.33 % equal, off by at most 2 (2 models)"


def test_a_step_may_be_allowed(ledger: Ledger) -> None:
    evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 3), steps=1)
    with pytest.raises(AssertionError):
        evidence.compare_compiled(FACTS, "x86-64-v3", outputs(1, 2), outputs(1, 3))


def test_no_comparison_is_no_evidence(ledger: Ledger) -> None:
    with pytest.raises(AssertionError):
        evidence.compare_compiled(FACTS, "x86-64-v3", [], [])


def test_other_types_do_not_compare() -> None:
    with pytest.raises(AssertionError):
        evidence.differences(outputs(1), [[np.array([1], np.uint8)]])


def test_what_is_not_a_number_equals_its_like() -> None:
    gaps = [[np.array([np.nan, 1.0, np.nan], np.float32)]], [[np.array([np.nan, 1.0, 2.0], np.float32)]]
    assert evidence.differences(*gaps)[:2] == (3, 1)


def test_accuracy(ledger: Ledger) -> None:
    theirs = np.array([[9, 1, 0, 0, 0, 0], [1, 2, 3, 4, 5, 0]], np.uint8)
    ours = np.array([[9, 1, 0, 0, 0, 0], [1, 2, 3, 4, 4, 0]], np.uint8)
    evidence.note_accuracy("net", "tflite", "xnnpack", theirs, ours, np.array([0, 3]))
    assert ledger.accuracies["net", "tflite", "xnnpack"] == ("2", "50 / 100 %", "100 / 100 %", "50 %", "91.6667 %")


def test_a_scheme_in_words() -> None:
    assert evidence.scheme_of(None) == "float"
    assert evidence.scheme_of(Scheme(("int8",), ("per-axis",), symmetric=True)) == "int8 per-axis, symmetric"
