"""Bounds of the latency in the options of a quantization."""

from __future__ import annotations

import pytest

from service.core.builds.quantization import LatencyBudget
from service.core.errors import InvalidInput


@pytest.mark.parametrize(("text", "limit_s"), [("5ms", 0.005), ("800us", 0.0008), ("2s", 2), ("1.5x", 3)])
def test_a_bound_is_a_time_or_a_multiple(text: str, limit_s: float) -> None:
    bound = LatencyBudget.parse(text)
    assert bound.limit_s(2.0) == pytest.approx(limit_s)
    assert str(bound) == text


@pytest.mark.parametrize("text", ["", "5", "x", "-1x", "0ms", "1e3ms", "5 ms", "nanx", "1.2X"])
def test_an_invalid_bound_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a latency budget"):
        LatencyBudget.parse(text)
