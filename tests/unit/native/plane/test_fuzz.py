"""Feeds damaged heads, bodies, JSON and protobuf messages to the data plane (tests/fuzz/native/plane.cc)."""

from __future__ import annotations

import pytest

from tests.support.native import run_ctest


def test_damaged_requests_do_no_harm() -> None:
    run_ctest("plane_fuzz")


@pytest.mark.slow  # building the whole data plane with sanitizers takes minutes
def test_sanitizers_find_nothing_in_damaged_requests() -> None:
    run_ctest("plane_fuzz", "address,undefined")
