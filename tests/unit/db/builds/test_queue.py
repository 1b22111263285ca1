"""Tests of claims: which worker may work on a build, and which may change it, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.core.builds.build import BuildState, LeaseLost, Stage
from service.core.digest import digest_of
from service.core.errors import BuildFailed
from service.db import BuildStore, Claim
from tests.support.build_inputs import inputs
from tests.support.manual_clock import ManualClock

LEASE_S = 30.0
ARTIFACT = digest_of(b"artifact")


def claim_as(builds: BuildStore, owner: str) -> Claim:
    claim = builds.claim(owner, LEASE_S)
    assert claim is not None
    return claim


def test_without_requests_there_is_nothing_to_claim(builds: BuildStore) -> None:
    assert builds.claim("worker", LEASE_S) is None


def test_a_claim_contains_the_build_inputs(builds: BuildStore, clock: ManualClock) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim = claim_as(builds, "worker")
    assert claim.inputs == inputs()
    assert claim.inputs.key == build.key
    assert (claim.build.id, claim.build.state, claim.build.attempt) == (build.id, BuildState.RUNNING, 1)
    assert claim.build.started_at == clock.now()


def test_builds_are_claimed_in_the_order_of_their_requests(builds: BuildStore) -> None:
    ids = [builds.submit(inputs(source=str(number)), "a", 1)[0].id for number in range(3)]
    assert [claim_as(builds, "worker").build.id for _ in ids] == ids
    assert builds.claim("worker", LEASE_S) is None


def test_a_build_with_a_live_worker_cannot_be_claimed(builds: BuildStore, clock: ManualClock) -> None:
    builds.submit(inputs(), "a", 1)
    claim = claim_as(builds, "alive")
    for _ in range(5):
        clock.advance(LEASE_S * 0.9)
        assert builds.claim("other", LEASE_S) is None
        builds.heartbeat(claim, LEASE_S)


def test_a_build_without_heartbeats_can_be_claimed_again(builds: BuildStore, clock: ManualClock) -> None:
    builds.submit(inputs(), "a", 1)
    first = claim_as(builds, "silent")
    builds.progress(first, Stage.CODEGEN, 0.5)
    clock.advance(LEASE_S + 1)
    second = claim_as(builds, "next")
    assert second.build.id == first.build.id
    assert (second.build.attempt, second.build.stage, second.build.progress) == (2, None, 0.0)
    assert second.token > first.token
    assert "worker silent sent no heartbeats" in str([event.data for event in builds.events(first.build.id)])


@pytest.mark.parametrize(
    "word",
    [
        lambda builds, claim: builds.heartbeat(claim, LEASE_S),
        lambda builds, claim: builds.progress(claim, Stage.IMPORT),
        lambda builds, claim: builds.log(claim, "I am back"),
        lambda builds, claim: builds.finish(claim, artifact=ARTIFACT),
        lambda builds, claim: builds.finish(claim, error=BuildFailed()),
        lambda builds, claim: builds.finish(claim, canceled=True),
        lambda builds, claim: builds.release(claim),
    ],
    ids=["heartbeat", "progress", "log", "succeed", "fail", "cancel", "release"],
)
@pytest.mark.parametrize("situation", ["claimed by another", "claimed again by itself", "over", "queued again"])
def test_a_stale_token_can_do_nothing(
    builds: BuildStore, clock: ManualClock, word: Callable[[BuildStore, Claim], None], situation: str
) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    stale = claim_as(builds, "worker")
    if situation == "queued again":
        builds.release(stale)
    else:
        clock.advance(LEASE_S + 1)
        claim = claim_as(builds, "worker" if situation == "claimed again by itself" else "another")
        if situation == "over":
            builds.finish(claim, artifact=digest_of(b"the other's"))
    before = builds.get(build.id), builds.events(build.id)
    with pytest.raises(LeaseLost):
        word(builds, stale)
    assert (builds.get(build.id), builds.events(build.id)) == before


def test_a_late_worker_may_finish_an_unclaimed_build(builds: BuildStore, clock: ManualClock) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim = claim_as(builds, "late")
    clock.advance(LEASE_S * 10)
    builds.finish(claim, artifact=ARTIFACT)
    assert builds.get(build.id).artifact == ARTIFACT


def test_a_build_that_kills_its_workers_fails(builds: BuildStore, clock: ManualClock) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    for number in range(3):
        builds.progress(claim_as(builds, f"victim {number}"), Stage.CODEGEN)
        clock.advance(LEASE_S + 1)
    assert builds.claim("survivor", LEASE_S) is None
    failed = builds.get(build.id)
    assert (failed.state, failed.attempt) == (BuildState.FAILED, 3)
    assert failed.error is not None
    assert (failed.error["code"], failed.error["stage"]) == ("build_crashed", "codegen")


def test_a_failed_build_does_not_block_the_next(builds: BuildStore, clock: ManualClock) -> None:
    builds.submit(inputs(source="deadly"), "a", 1)
    for _ in range(3):
        claim_as(builds, "victim")
        clock.advance(LEASE_S + 1)
    harmless, _ = builds.submit(inputs(source="harmless"), "a", 2)
    assert claim_as(builds, "survivor").build.id == harmless.id


def test_a_canceled_build_without_heartbeats_is_canceled(builds: BuildStore, clock: ManualClock) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim_as(builds, "silent")
    builds.cancel(build.id)
    clock.advance(LEASE_S + 1)
    assert builds.claim("next", LEASE_S) is None
    assert builds.get(build.id).state is BuildState.CANCELED


def test_canceling_a_build_without_heartbeats_takes_effect_at_once(builds: BuildStore, clock: ManualClock) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim_as(builds, "silent")
    clock.advance(LEASE_S + 1)
    assert builds.cancel(build.id).state is BuildState.CANCELED


def test_a_released_build_can_be_claimed_at_once_without_costing_an_attempt(builds: BuildStore) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    for _ in range(5):
        builds.release(claim_as(builds, "stopping"))
    waiting = builds.get(build.id)
    assert (waiting.state, waiting.started_at, waiting.stage) == (BuildState.QUEUED, None, None)
    assert claim_as(builds, "next").build.attempt == 1


def test_releasing_a_canceled_build_cancels_it(builds: BuildStore) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim = claim_as(builds, "stopping")
    builds.cancel(build.id)
    builds.release(claim)
    assert builds.get(build.id).state is BuildState.CANCELED


def test_a_clock_set_back_does_not_extend_a_lease(builds: BuildStore, clock: ManualClock) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim_as(builds, "first")
    clock.jump(-86_400)
    assert builds.claim("second", LEASE_S) is None  # the first worker may still be running
    clock.advance(LEASE_S / 2)
    assert builds.claim("second", LEASE_S) is None
    clock.advance(LEASE_S / 2 + 1)
    assert claim_as(builds, "second").build.id == build.id


def test_a_heartbeat_renews_the_lease_even_if_the_clock_was_set_back(builds: BuildStore, clock: ManualClock) -> None:
    builds.submit(inputs(), "a", 1)
    claim = claim_as(builds, "first")
    clock.jump(-86_400)
    for _ in range(4):
        clock.advance(LEASE_S / 2)
        builds.heartbeat(claim, LEASE_S)
        assert builds.claim("second", LEASE_S) is None


def test_a_worker_claims_only_builds_for_its_targets(builds: BuildStore) -> None:
    first, second = (builds.submit(inputs(target=target), "a", 1)[0].id for target in ("x86-64-v3", "aarch64"))
    assert builds.claim("a", LEASE_S, ["riscv64+v"]) is None
    claim = builds.claim("a", LEASE_S, ["aarch64", "aarch64+dotprod"])
    assert claim is not None
    assert claim.build.id == second
    assert builds.claim("a", LEASE_S, ["aarch64"]) is None
    assert claim_as(builds, "a").build.id == first
