"""Tests of the differences between two states."""

from __future__ import annotations

from service.api.control.updates.changes import changes_of


def test_the_first_state_is_a_change_as_a_whole() -> None:
    state = {"models": {"a": {"version": 1}}, "broken": {}}
    assert changes_of({}, state) == {"models": {"set": {"a": {"version": 1}}}, "broken": {}}


def test_only_changed_and_deleted_items_are_sent() -> None:
    before = {"models": {"a": 1, "b": 2, "c": 3}, "load": {"waiting": 0}}
    after = {"models": {"a": 1, "b": 5, "d": 4}, "load": {"waiting": 0}}
    assert changes_of(before, after) == {"models": {"set": {"b": 5, "d": 4}, "gone": ["c"]}}
    assert changes_of(after, after) == {}


def test_an_item_may_become_none() -> None:
    assert changes_of({"models": {"a": 1}}, {"models": {"a": None}}) == {"models": {"set": {"a": None}}}
