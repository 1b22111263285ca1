"""Feeds damaged connections to a service that does random things (tests/native/h2/fuzz.cc)."""

from __future__ import annotations

import pytest

from tests.support.native import run_ctest


def test_damaged_connections_break_nothing() -> None:
    run_ctest("h2_fuzz")


@pytest.mark.slow
def test_damaged_connections_break_nothing_that_sanitizers_see() -> None:
    run_ctest("h2_fuzz", "address,undefined")
