"""Tests of the version that a request names: a number or an alias, in the URL or after the model's name."""

from __future__ import annotations

import pytest

from service.api.oip.address import parse_address, parse_addresses
from service.core.errors import InvalidInput, NotFound
from service.workers.inference import Reference


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [
        ("digits", "", ("digits", None)),
        ("digits", "2", ("digits", 2)),
        ("digits", "stable", ("digits", "stable")),
        ("digits@stable", "", ("digits", "stable")),
        ("digits@2", "", ("digits", 2)),
        ("digits@", "", ("digits", None)),
        ("digits@", "2", ("digits", 2)),
    ],
)
def test_addresses(model: str, version: str, expected: tuple[str, Reference]) -> None:
    assert parse_address(model, version) == expected


@pytest.mark.parametrize("version", ["-1", "1.5", "Stable", "9" * 10, "²", "stable\n", "a@b"])
def test_other_text_than_a_number_or_alias_is_not_a_version(version: str) -> None:
    with pytest.raises(NotFound, match="no such version"):
        parse_address("digits", version)


def test_a_version_that_is_named_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has two versions: 'stable' and '2'"):
        parse_address("digits@stable", "2")


@pytest.mark.parametrize(
    ("text", "names"),
    [("", []), ("a", [("a", None)]), ("a, b@stable,c@2 ,", [("a", None), ("b", "stable"), ("c", 2)]), ("*", None)],
)
def test_several_addresses(text: str, names: list[tuple[str, Reference]] | None) -> None:
    assert parse_addresses(text) == names
