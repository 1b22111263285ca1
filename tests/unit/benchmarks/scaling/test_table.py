"""Runs the measurement of the messages that a router receives, on a small cluster."""

from __future__ import annotations

from benchmarks.scaling import table


def test_the_cost_of_each_order_is_measured() -> None:
    costs = table.measure(workers=20, models=200)
    assert all(each.making_s > 0 and each.reading_s > 0 for each in costs.values())
    assert costs["whole"].bytes > 10 * max(each.bytes for what, each in costs.items() if what != "whole")
