from __future__ import annotations

import pytest

from service.core.access.origins import parse_origins


def test_origins_are_a_list_with_commas() -> None:
    assert parse_origins("") == ()
    assert parse_origins("*") == ("*",)
    expected = ("https://app.example", "http://localhost:5173", "http://[::1]:3000", "chrome-extension://abcdef")
    assert parse_origins(" , ".join(expected) + ",") == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("https://app.example/", "without a path"),
        ("app.example", "has the form"),
        ("https://App.example", "in lower case"),
        ("https://*.app.example", "is not an origin"),
        ("null", "is not an origin"),  # every page that a browser isolates has this origin
        ("https://app.example:443", "browsers leave this port out"),
        ("http://app.example:80", "browsers leave this port out"),
        ("https://app.example\r\nx: y", "is not an origin"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_origins(f"https://first.example, {text}")
