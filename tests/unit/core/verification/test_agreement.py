"""Tests of the decision whether a build agrees with its reference runtime."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.verification.agreement import (
    REAL_TOLERANCE,
    Comparison,
    Deviation,
    Outcome,
    OutputComparison,
    decide,
    is_different,
    may_serve,
)

ONE_STEP, UNBOUNDED = Deviation("softmax", "rounds otherwise", 1), Deviation("conv2d", "saturates", None)


def of(*outputs: OutputComparison) -> Comparison:
    return Comparison((0, 1), outputs)


def integers(largest: float | None, equal: int = 9) -> Comparison:
    return of(OutputComparison(10, equal, False, largest))


def real(largest: float | None, span: float = 1.0) -> Comparison:
    return of(OutputComparison(10, 9, True, largest, span))


def test_equal_values_are_equal() -> None:
    assert decide(integers(0.0, equal=10)) is Outcome.EQUAL


def test_one_step_that_no_mode_documents_is_different() -> None:
    assert decide(integers(1.0)) is Outcome.DIFFERENT


@pytest.mark.parametrize(
    ("deviation", "steps", "outcome"),
    [
        (ONE_STEP, 1.0, Outcome.DOCUMENTED),
        (ONE_STEP, 2.0, Outcome.DIFFERENT),
        (UNBOUNDED, 200.0, Outcome.DOCUMENTED),
    ],
)
def test_a_deviation_documents_differences_up_to_its_bound(
    deviation: Deviation, steps: float, outcome: Outcome
) -> None:
    assert decide(integers(steps), [deviation]) is outcome


@pytest.mark.parametrize("comparison", [integers(None), real(None)])
def test_no_deviation_documents_another_shape_or_a_nan(comparison: Comparison) -> None:
    assert decide(comparison, [UNBOUNDED]) is Outcome.DIFFERENT


def test_real_values_may_differ_by_a_share_of_their_range() -> None:
    assert decide(real(REAL_TOLERANCE * 100, span=100.0)) is Outcome.DOCUMENTED
    assert decide(real(REAL_TOLERANCE * 100, span=99.0)) is Outcome.DIFFERENT


def test_a_real_output_without_a_range_has_to_be_equal() -> None:
    assert decide(real(1e-9, span=0.0)) is Outcome.DIFFERENT


def test_one_different_output_makes_a_build_different() -> None:
    both = of(OutputComparison(10, 10, False, 0.0), OutputComparison(10, 9, False, 3.0))
    assert decide(both, [ONE_STEP]) is Outcome.DIFFERENT


def test_a_deviation_may_document_a_share_of_the_range_of_a_real_output() -> None:
    rounds = Deviation("quantize", "rounds to the neighbouring step", 1, bound_relative=5e-3)
    assert decide(real(5e-3), [rounds]) is Outcome.DOCUMENTED
    assert decide(real(6e-3), [rounds]) is Outcome.DIFFERENT
    assert decide(integers(1.0), [rounds]) is Outcome.DOCUMENTED


def test_a_deviation_survives_a_round_trip() -> None:
    deviation = Deviation("quantize", "rounds to the neighbouring step", 1, 5e-3, 7)
    assert Deviation.from_json(deviation.to_json()) == deviation


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({"verified": True, "outcome": "equal"}, True),
        ({"verified": True, "outcome": "different"}, True),  # written by an earlier release, which ignored the outcome
        ({"verified": False, "outcome": "different"}, False),
        ({"verified": False, "outcome": "different", "accepted": True}, True),
        ({"verified": False, "outcome": "not_checked"}, False),
        ({}, False),
    ],
)
def test_only_verified_or_accepted_artifacts_may_be_served(report: dict[str, Any], expected: bool) -> None:
    assert may_serve(report) is expected


def test_only_a_report_of_an_unaccepted_difference_is_different() -> None:
    assert is_different({"verified": False, "outcome": "different"})
    assert not is_different({"verified": False, "outcome": "different", "accepted": True})
    assert not is_different({"verified": True, "outcome": "different"})
    assert not is_different({"verified": False, "outcome": "not_checked"})


def test_a_comparison_survives_a_round_trip() -> None:
    both = of(OutputComparison(10, 9, True, None, 2.5), OutputComparison(10, 9, False, 3.0))
    assert Comparison.from_json(both.to_json()) == both


def test_more_equal_values_than_values_are_refused() -> None:
    with pytest.raises(ValueError, match="11 of 10"):
        OutputComparison.from_json({**OutputComparison(10, 9).to_json(), "equal": 11})
