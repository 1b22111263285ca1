from __future__ import annotations

import pytest

from service.api.control.preferences import preferences_in, wait_of, wants_async


def test_preferences_are_a_list_with_values() -> None:
    found = preferences_in('respond-async, wait=10; Foo="bar", wait=20')
    assert found == {"respond-async": "", "wait": "10", "foo": "bar"}
    assert preferences_in(None) == {"": ""}


@pytest.mark.parametrize(
    ("prefer", "wait_s"),
    [
        ("wait=30", 30),
        ('Wait = "5", respond-async', 5),
        ("wait=1000", 60),
        ("wait", None),
        ("wait=-1", None),
        ("", None),
    ],
)
def test_a_wait_is_limited(prefer: str, wait_s: int | None) -> None:
    assert wait_of(prefer) == wait_s


def test_an_asynchronous_response_has_to_be_requested() -> None:
    assert wants_async("wait=3, Respond-Async")
    assert not wants_async("respond-asynchronously")
    assert not wants_async(None)
