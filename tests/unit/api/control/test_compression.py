"""Tests of the choice of a coding."""

from __future__ import annotations

import pytest

from service.api.control.compression import accepts_gzip


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("gzip; q=0", False),
        ("deflate, br", False),
        ("", False),
    ],
)
def test_gzip_is_used_if_the_client_offers_it(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
