"""Sizes are chosen by the time they take, and padding too."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.workers.inference.batch_plan import _WORTH, BatchPlan

COMPUTES = {1: 1.0, 2: 1.98, 4: 3.92, 8: 7.8}  # a convolutional network on one core
CALLS = {1: 1.0, 8: 1.3}  # a few small layers, where a call costs more than what it computes


def test_who_gains_nothing_by_company_is_computed_alone() -> None:
    assert BatchPlan(COMPUTES).table[8] == (1,) * 8


def test_the_largest_size_that_fits_then_the_rest() -> None:
    plan = BatchPlan({1: 1.0, 4: 2.0, 8: 5.0})
    assert plan.table[6] == (4, 1, 1)


@pytest.mark.parametrize("samples", range(2, 9))
def test_a_call_is_padded_where_that_takes_less_time(samples: int) -> None:
    assert BatchPlan(CALLS).table[samples] == (8,)


@given(
    times=st.dictionaries(st.sampled_from((2, 3, 4, 8)), st.floats(0.1, 10.0), max_size=4),
    samples=st.integers(1, 8),
)
def test_no_other_choice_of_calls_is_much_faster(times: dict[int, float], samples: int) -> None:
    call_s = {1: 1.0, **times}
    plan = BatchPlan(call_s)
    if samples > plan.most:
        return
    chosen = plan.table[samples]
    assert sum(chosen) >= samples
    least_s = min(
        sum(call_s[size] for size in sizes)
        for count in range(1, samples + 1)
        for sizes in combinations_with_replacement(call_s, count)
        if sum(sizes) >= samples
    )
    # Every size declined was worth less than a tenth of what was chosen instead, once for each call at most.
    assert sum(call_s[size] for size in chosen) <= least_s / _WORTH ** len(call_s) + 1e-9
