"""Tests what clients may hold and do (tests/native/h2/budget_facts.cc)."""

from __future__ import annotations

from tests.support.native import run_ctest


def test_limits_of_clients() -> None:
    run_ctest("budget_facts")
