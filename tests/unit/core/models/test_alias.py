"""Tests of promoting and rolling back aliases."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.core.errors import Conflict, InvalidInput
from service.core.models.alias import Alias, aliases_in, annotation_of, check_alias, first

THEN, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
ONE = Alias("digits", "stable", 1, THEN)


def test_a_promotion_records_the_previous_version() -> None:
    assert ONE.promoted(2, 100, NOW) == Alias("digits", "stable", 2, NOW, previous=(1,))


def test_a_canary_shares_with_what_was_before() -> None:
    shared = ONE.promoted(2, 10, NOW)
    assert shared == Alias("digits", "stable", 1, NOW, canary=2, canary_percent=10)
    assert shared.promoted(2, 50, NOW) == replace(shared, canary_percent=50)
    assert shared.promoted(2, 100, NOW) == Alias("digits", "stable", 2, NOW, previous=(1,))


def test_a_rollback_ends_the_canary_first() -> None:
    two = ONE.promoted(2, 100, THEN)
    assert two.promoted(3, 10, THEN).promoted(3, 50, THEN).rolled_back(None, THEN) == two
    assert two.rolled_back(None, NOW) == replace(ONE, changed_at=NOW)


def test_a_rollback_away_from_a_version_can_be_repeated() -> None:
    three = ONE.promoted(2, 100, THEN).promoted(3, 100, THEN)
    back = three.rolled_back(3, NOW)
    assert (back.version, back.previous) == (2, (1,))
    assert back.rolled_back(3, NOW) == back


def test_a_rollback_away_from_the_main_version_ends_a_canary_too() -> None:
    shared = ONE.promoted(2, 100, THEN).promoted(3, 10, THEN)
    assert shared.rolled_back(2, NOW) == replace(ONE, changed_at=NOW)


def test_a_rollback_needs_a_previous_version() -> None:
    with pytest.raises(Conflict, match="no version before 1"):
        ONE.rolled_back(None, NOW)


def test_promoting_the_current_version_ends_the_canary() -> None:
    two = ONE.promoted(2, 100, THEN)
    assert two.promoted(3, 10, THEN).promoted(2, 100, THEN) == two


def test_the_current_version_cannot_be_the_canary() -> None:
    with pytest.raises(InvalidInput, match="already points at version 1"):
        ONE.promoted(1, 10, NOW)
    with pytest.raises(InvalidInput, match="share requests with"):
        first("digits", "stable", 1, 10, NOW)


def test_the_list_of_previous_versions_is_limited() -> None:
    alias = ONE
    for version in range(2, 100):
        alias = alias.promoted(version, 100, NOW)
    assert alias.previous == tuple(range(98, 82, -1))


@pytest.mark.parametrize("name", ["latest", "1", "", "Stable", "a b", "a@b", "stable\n", "a" * 64])
def test_invalid_alias_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_alias(name)


def test_an_alias_survives_its_annotation() -> None:
    aliases = [ONE, Alias("b.c-d", "my-own", 7, NOW, 8, 25, (6, 5))]
    annotations = dict(map(annotation_of, aliases))
    assert aliases_in(annotations | {"dev.octet.model.digits:1": "x"}) == aliases


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"version": null}'])
def test_a_malformed_annotation_is_refused(value: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own, or ours
        aliases_in({"dev.octet.alias.digits:stable": value})
