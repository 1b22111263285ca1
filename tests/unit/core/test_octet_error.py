"""Tests of the base class of errors."""

from __future__ import annotations

from service.core.octet_error import OctetError


class _Broken(OctetError):
    """The thing is broken.

    The cause is unknown.
    """

    code = "broken"


def test_the_default_message_is_the_first_line_of_the_docstring() -> None:
    assert str(_Broken()) == _Broken().message == "The thing is broken."


def test_members_that_are_not_set_are_left_out() -> None:
    error = _Broken(stage="link", hint="mend it", retry_after_s=2.0)
    assert error.to_json() == {
        "code": "broken",
        "message": "The thing is broken.",
        "stage": "link",
        "hint": "mend it",
    }
