"""Tests of the table of aliases, on SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from service.core.digest import digest_of
from service.core.errors import InvalidInput, NotFound
from service.core.models.alias import Alias
from service.db import AliasStore, Database, ModelStore
from tests.support.manual_clock import ManualClock


@pytest.fixture
def aliases(database: Database, models: ModelStore, clock: ManualClock) -> AliasStore:
    for model in ("a", "b"):
        for file in (b"1", b"2", b"3"):
            models.push(model, digest_of(file), "tflite", 1)
    return AliasStore(database, clock)


def test_a_promoted_alias_is_found(aliases: AliasStore, clock: ManualClock) -> None:
    assert aliases.find("a", "stable") is None
    assert aliases.promote("a", "stable", 1, 100) == Alias("a", "stable", 1, clock.now())
    clock.advance(5)
    shared = Alias("a", "stable", 1, clock.now(), 2, 10)
    assert aliases.promote("a", "stable", 2, 10) == shared
    assert aliases.find("a", "stable") == shared


def test_a_rolled_back_alias_is_found(aliases: AliasStore) -> None:
    for version in (1, 2, 3):
        aliases.promote("a", "stable", version, 100)
    assert aliases.rollback("a", "stable").versions == (2,)
    assert aliases.rollback("a", "stable", away_from=3).versions == (2,)
    assert aliases.rollback("a", "stable", away_from=2).versions == (1,)
    found = aliases.find("a", "stable")
    assert found is not None
    assert (found.version, found.previous) == (1, ())


def test_aliases_are_listed_by_model_and_name(aliases: AliasStore) -> None:
    for model, name in (("b", "stable"), ("a", "stable"), ("a", "mine")):
        aliases.promote(model, name, 1, 100)
    assert [(each.model, each.name) for each in aliases.list()] == [("a", "mine"), ("a", "stable"), ("b", "stable")]
    assert [each.name for each in aliases.list("b")] == ["stable"]


def test_an_alias_that_was_removed_is_gone(aliases: AliasStore) -> None:
    aliases.promote("a", "mine", 1, 100)
    aliases.remove("a", "mine")
    assert aliases.list() == []
    with pytest.raises(NotFound, match="no alias 'mine'"):
        aliases.remove("a", "mine")
    with pytest.raises(NotFound, match="no alias 'mine'"):
        aliases.rollback("a", "mine")


def test_only_existing_versions_can_be_promoted(aliases: AliasStore) -> None:
    with pytest.raises(NotFound, match="no version 4"):
        aliases.promote("a", "stable", 4, 100)
    with pytest.raises(InvalidInput, match="latest"):
        aliases.promote("a", "latest", 1, 100)
    with pytest.raises(InvalidInput, match="share"):
        aliases.promote("a", "stable", 1, 10)
    assert aliases.list() == []


def test_a_lost_alias_is_restored_and_an_existing_one_kept(aliases: AliasStore, clock: ManualClock) -> None:
    lost = Alias("a", "stable", 2, clock.now(), 3, 20, (1,))
    assert aliases.restore(lost)
    assert aliases.find("a", "stable") == lost
    assert not aliases.restore(Alias("a", "stable", 1, clock.now()))
    assert aliases.find("a", "stable") == lost


def test_concurrent_promotions_are_serialized(aliases: AliasStore) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda version: aliases.promote("a", "stable", version, 100), (1, 2, 3)))
    found = aliases.find("a", "stable")
    assert found is not None
    assert sorted((found.version, *found.previous)) == [1, 2, 3]
