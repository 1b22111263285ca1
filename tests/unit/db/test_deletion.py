"""Tests of deleting models, on SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from service.core.builds.build import BuildState, LeaseLost, Stage
from service.core.digest import digest_of
from service.core.errors import Conflict, NotFound
from service.core.models.alias import Alias
from service.core.models.model import Deleted
from service.db import AliasStore, BuildStore, Claim, Database, ModelStore
from tests.support.build_inputs import TARGET, inputs
from tests.support.manual_clock import ManualClock

ARTIFACT = digest_of(b"artifact")


@pytest.fixture
def aliases(database: Database, clock: ManualClock) -> AliasStore:
    return AliasStore(database, clock)


def push(models: ModelStore, name: str = "a", *files: str) -> None:
    for file in files or ("one",):
        models.push(name, digest_of(file.encode()), "tflite", 5)


def claimed(builds: BuildStore) -> Claim:
    claim = builds.claim("worker", 30.0)
    assert claim is not None
    return claim


def build(builds: BuildStore, name: str = "a", version: int = 1, source: str = "one") -> str:
    """Runs a build until it has succeeded, and returns its id."""
    found, created = builds.submit(inputs(source), name, version)
    if created:
        claim = claimed(builds)
        builds.progress(claim, Stage.CODEGEN)
        builds.finish(claim, artifact=ARTIFACT)
    return found.id


def test_deleting_a_model_deletes_all_versions(models: ModelStore) -> None:
    push(models, "a", "one", "two")
    push(models, "b")
    assert models.delete("a") == Deleted("a", (1, 2))
    with pytest.raises(NotFound):
        models.get("a")
    assert [each.name for each in models.all_versions()] == ["b"]
    assert models.sources() == [digest_of(b"one")]


def test_deleting_a_version_keeps_the_others(models: ModelStore) -> None:
    push(models, "a", "one", "two", "three")
    assert models.delete("a", 2) == Deleted("a", (2,))
    assert [each.number for each in models.versions("a")] == [3, 1]
    push(models, "a", "two")
    assert models.get("a").number == 4


def test_the_number_of_a_deleted_version_is_never_reused(models: ModelStore) -> None:
    push(models, "a", "one", "two", "three")
    models.delete("a", 3)
    models.delete("a", 1)
    push(models, "a", "four")
    assert [each.number for each in models.versions("a")] == [4, 2]
    models.delete("a")
    push(models, "a", "one")
    assert models.get("a").number == 5
    push(models, "b")
    assert models.get("b").number == 1, "each model has its own numbers"


def test_an_unknown_model_cannot_be_deleted(models: ModelStore) -> None:
    push(models)
    with pytest.raises(NotFound, match="no model 'b'"):
        models.delete("b")
    with pytest.raises(NotFound, match="no version 2"):
        models.delete("a", 2)
    assert len(models.all_versions()) == 1


@pytest.mark.parametrize("number", [None, 2])
def test_a_version_of_an_alias_is_not_deleted(models: ModelStore, aliases: AliasStore, number: int | None) -> None:
    push(models, "a", "one", "two")
    aliases.promote("a", "stable", 2, 100)
    with pytest.raises(Conflict, match=r"'stable'.*version 2"):
        models.delete("a", number)
    assert [each.number for each in models.versions("a")] == [2, 1]


def test_a_canary_is_not_deleted(models: ModelStore, aliases: AliasStore) -> None:
    push(models, "a", "one", "two")
    aliases.promote("a", "stable", 1, 100)
    aliases.promote("a", "stable", 2, 10)
    with pytest.raises(Conflict, match="version 2"):
        models.delete("a", 2)


def test_a_deleted_previous_version_is_removed_from_the_alias(
    models: ModelStore, aliases: AliasStore, clock: ManualClock
) -> None:
    push(models, "a", "one", "two", "three")
    for version in (1, 2, 3):
        aliases.promote("a", "stable", version, 100)
    models.delete("a", 2)
    assert aliases.find("a", "stable") == Alias("a", "stable", 3, clock.now(), previous=(1,))


def test_force_deletes_aliases_without_a_version(models: ModelStore, aliases: AliasStore) -> None:
    push(models, "a", "one", "two")
    push(models, "b")
    aliases.promote("a", "stable", 1, 100)
    aliases.promote("a", "mine", 2, 100)
    aliases.promote("b", "stable", 1, 100)
    assert models.delete("a", 1, force=True) == Deleted("a", (1,), ("stable",))
    assert [(each.model, each.name) for each in aliases.list()] == [("a", "mine"), ("b", "stable")]


def test_force_ends_a_canary_and_keeps_the_version(models: ModelStore, aliases: AliasStore) -> None:
    push(models, "a", "one", "two")
    aliases.promote("a", "stable", 1, 100)
    aliases.promote("a", "stable", 2, 10)
    models.delete("a", 2, force=True)
    left = aliases.find("a", "stable")
    assert left is not None
    assert (left.version, left.canary, left.canary_percent) == (1, None, 0)


def test_a_build_without_requests_is_not_found(models: ModelStore, builds: BuildStore) -> None:
    push(models)
    id = build(builds)
    assert models.delete("a") == Deleted("a", (1,), builds=1)
    assert builds.list() == ([], None)
    assert builds.serving("a", None, [TARGET]) == []
    assert builds.artifacts() == []
    for question in (builds.get, builds.events, builds.cancel):
        with pytest.raises(NotFound):
            question(id)


def test_the_same_file_pushed_again_is_built_again(models: ModelStore, builds: BuildStore) -> None:
    push(models)
    first = build(builds)
    models.delete("a")
    push(models)
    second, created = builds.submit(inputs("one"), "a", 1)
    assert created
    assert second.id != first


def test_a_build_with_other_requests_stays(models: ModelStore, builds: BuildStore) -> None:
    push(models, "a")
    push(models, "b")
    id = build(builds, "a")
    assert build(builds, "b") == id
    assert models.delete("a").builds == 0
    left = builds.get(id)
    assert (left.model, left.version, left.state, left.artifact) == ("b", 1, BuildState.SUCCEEDED, ARTIFACT)
    assert [each.id for each in builds.serving("b", 1, [TARGET])] == [id]
    assert builds.serving("a", None, [TARGET]) == []


def test_a_queued_build_without_requests_is_never_claimed(models: ModelStore, builds: BuildStore) -> None:
    push(models)
    builds.submit(inputs("one"), "a", 1)
    models.delete("a")
    assert builds.claim("worker", 30.0) is None


def test_a_worker_loses_a_build_without_requests(models: ModelStore, builds: BuildStore) -> None:
    push(models)
    builds.submit(inputs("one"), "a", 1)
    claim = claimed(builds)
    models.delete("a")
    with pytest.raises(LeaseLost):
        builds.progress(claim, Stage.LINK)
    with pytest.raises(LeaseLost):
        builds.finish(claim, artifact=ARTIFACT)


def test_counts_do_not_decrease(models: ModelStore, builds: BuildStore) -> None:
    push(models)
    build(builds)
    before = builds.statistics([1.0])
    models.delete("a")
    assert builds.statistics([1.0]) == before


def test_a_build_with_several_requests_lists_them(models: ModelStore, builds: BuildStore, clock: ManualClock) -> None:
    id = build(builds, "a")
    other = build(builds, "c", 3, "other")
    build(builds, "b", 2)
    assert builds.requests_of([id, other]) == {
        id: [("a", 1, clock.now()), ("b", 2, clock.now())],
        other: [("c", 3, clock.now())],
    }
    assert [(each.id, each.model, each.version) for each in builds.requested_by(["b", "c"])] == [
        (id, "b", 2),
        (other, "c", 3),
    ]


def test_concurrent_deletion_and_promotion_leave_no_alias_without_a_version(
    models: ModelStore, aliases: AliasStore
) -> None:
    def promote() -> None:
        with suppress(NotFound):
            aliases.promote("a", "stable", 1, 100)

    def delete() -> None:
        with suppress(Conflict):
            models.delete("a")

    for _ in range(10):
        push(models)
        with ThreadPoolExecutor(2) as executor:
            for call in (executor.submit(promote), executor.submit(delete)):
                call.result()
        pointed = aliases.find("a", "stable")
        assert (pointed is not None) == bool(models.all_versions())
        if pointed is not None:
            models.delete("a", force=True)
