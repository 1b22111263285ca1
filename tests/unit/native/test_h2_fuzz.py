"""Feeds damaged connections to a service that does random things (tests/native/h2/fuzz.cc)."""

from __future__ import annotations

import pytest

from tests.support.native import run_ctest


def test_damaged_connections_do_no_harm() -> None:
    run_ctest("h2_fuzz")


@pytest.mark.slow
def test_sanitizers_find_nothing_in_damaged_connections() -> None:
    run_ctest("h2_fuzz", "address,undefined")
