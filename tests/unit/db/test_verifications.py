"""Tests of verifications: which worker may claim and change one, and what may be served, on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from service.core.builds.build import LeaseLost
from service.core.digest import digest_of
from service.core.verification.jobs import VerificationState
from service.db import BuildStore, Database, VerificationClaim, VerificationStore
from tests.support.build_inputs import TARGET, inputs
from tests.support.manual_clock import ManualClock

LEASE_S = 30.0
ARTIFACT, OTHER = digest_of(b"artifact"), digest_of(b"other")
RESULT = {"summary": "all values are equal", "p50_s": 0.001}


@pytest.fixture
def verifications(database: Database, clock: ManualClock) -> VerificationStore:
    return VerificationStore(database, clock, max_attempts=3)


def claim_as(verifications: VerificationStore, owner: str) -> VerificationClaim:
    claim = verifications.claim(owner, "pool", LEASE_S, [TARGET])
    assert claim is not None
    return claim


def state(verifications: VerificationStore) -> VerificationState:
    return verifications.find([ARTIFACT])[ARTIFACT].state


def built(builds: BuildStore, *, is_verified: bool, source: str = "model") -> None:
    builds.submit(inputs(source), "a", 1)
    claim = builds.claim("worker", LEASE_S)
    assert claim is not None
    builds.finish(claim, artifact=ARTIFACT, is_verified=is_verified)


def test_an_unverified_build_is_served_after_a_worker_verified_it(
    builds: BuildStore, verifications: VerificationStore
) -> None:
    built(builds, is_verified=False)
    assert builds.serving("a", None, [TARGET]) == []
    assert builds.unverified([ARTIFACT, OTHER]).keys() == {ARTIFACT}
    verifications.finish(claim_as(verifications, "w"), passed=True, result=RESULT)
    assert [build.artifact for build in builds.serving("a", None, [TARGET])] == [ARTIFACT]
    assert builds.unverified([ARTIFACT]) == {}


def test_a_build_verified_by_its_host_needs_no_verification(
    builds: BuildStore, verifications: VerificationStore
) -> None:
    built(builds, is_verified=True)
    assert not verifications.any_to_claim("pool", [TARGET])
    assert len(builds.serving("a", None, [TARGET])) == 1


def test_a_build_with_a_failed_verification_is_not_served(builds: BuildStore, verifications: VerificationStore) -> None:
    built(builds, is_verified=False)
    verifications.finish(claim_as(verifications, "w"), passed=False, result={"summary": "1 of 2 values differs"})
    assert builds.serving("a", None, [TARGET]) == []
    assert builds.unverified([ARTIFACT])[ARTIFACT].summary == "1 of 2 values differs"
    assert not verifications.any_to_claim("pool", [TARGET])


def test_another_build_of_the_artifact_queues_a_failed_verification_again(
    builds: BuildStore, verifications: VerificationStore
) -> None:
    built(builds, is_verified=False)
    verifications.finish(claim_as(verifications, "w"), passed=False, result={})
    built(builds, is_verified=False, source="another")
    assert state(verifications) is VerificationState.QUEUED


def test_another_build_of_the_artifact_keeps_a_passed_verification(
    builds: BuildStore, verifications: VerificationStore
) -> None:
    built(builds, is_verified=False)
    verifications.finish(claim_as(verifications, "w"), passed=True, result=RESULT)
    built(builds, is_verified=False, source="another")
    assert verifications.find([ARTIFACT])[ARTIFACT].result == RESULT


def test_a_claim_contains_the_verification(verifications: VerificationStore) -> None:
    verifications.submit(ARTIFACT, TARGET)
    claim = claim_as(verifications, "w")
    found = verifications.find([ARTIFACT])[ARTIFACT]
    assert claim.verification == found
    assert (found.state, found.worker, found.attempt) == (VerificationState.RUNNING, "w", 1)


def test_submitting_again_changes_nothing(verifications: VerificationStore) -> None:
    verifications.submit(ARTIFACT, TARGET)
    claim = claim_as(verifications, "w")
    assert verifications.submit(ARTIFACT, TARGET) == claim.verification


def test_only_verifications_for_the_given_targets_are_claimed_the_oldest_first(
    verifications: VerificationStore, clock: ManualClock
) -> None:
    verifications.submit(OTHER, TARGET)
    clock.advance(1)
    verifications.submit(ARTIFACT, TARGET)
    assert verifications.claim("arm", "pool", LEASE_S, ["aarch64"]) is None
    assert not verifications.any_to_claim("pool", ["aarch64"])
    assert [claim_as(verifications, "w").artifact for _ in range(2)] == [OTHER, ARTIFACT]
    assert verifications.claim("w", "pool", LEASE_S, [TARGET]) is None


def test_a_verification_without_heartbeats_can_be_claimed_again(
    verifications: VerificationStore, clock: ManualClock
) -> None:
    verifications.submit(ARTIFACT, TARGET)
    first = claim_as(verifications, "silent")
    clock.advance(LEASE_S * 0.9)
    verifications.heartbeat(first, LEASE_S)
    clock.advance(LEASE_S * 0.9)
    assert verifications.claim("next", "pool", LEASE_S, [TARGET]) is None
    clock.advance(LEASE_S)
    second = claim_as(verifications, "next")
    assert (second.verification.attempt, second.verification.worker) == (2, "next")
    assert second.token > first.token


def test_a_verification_that_kills_its_workers_fails(verifications: VerificationStore, clock: ManualClock) -> None:
    verifications.submit(ARTIFACT, TARGET)
    for _ in range(3):
        claim_as(verifications, "w")
        clock.advance(LEASE_S + 1)
    assert verifications.claim("w", "pool", LEASE_S, [TARGET]) is None
    found = verifications.find([ARTIFACT])[ARTIFACT]
    assert (found.state, found.summary) == (VerificationState.FAILED, "the worker of this verification died 3 times")


@pytest.mark.parametrize("counts", [True, False])
def test_a_released_verification_can_be_claimed_at_once(verifications: VerificationStore, counts: bool) -> None:
    verifications.submit(ARTIFACT, TARGET)
    verifications.release(claim_as(verifications, "w"), counts=counts)
    assert state(verifications) is VerificationState.QUEUED
    assert claim_as(verifications, "next").verification.attempt == (2 if counts else 1)


@pytest.mark.parametrize(
    "word",
    [
        lambda store, claim: store.heartbeat(claim, LEASE_S),
        lambda store, claim: store.release(claim, counts=True),
        lambda store, claim: store.finish(claim, passed=True, result=RESULT),
    ],
    ids=["heartbeat", "release", "finish"],
)
@pytest.mark.parametrize("situation", ["claimed by another", "over", "queued again", "forgotten"])
def test_a_stale_token_can_do_nothing(
    verifications: VerificationStore,
    clock: ManualClock,
    word: Callable[[VerificationStore, VerificationClaim], None],
    situation: str,
) -> None:
    verifications.submit(ARTIFACT, TARGET)
    stale = claim_as(verifications, "w")
    if situation == "claimed by another":
        clock.advance(LEASE_S + 1)
        claim_as(verifications, "next")
    elif situation == "over":
        verifications.finish(stale, passed=False, result={})
    elif situation == "queued again":
        verifications.release(stale, counts=True)
    else:
        assert verifications.forget() == 1
    before = verifications.find([ARTIFACT])
    with pytest.raises(LeaseLost):
        word(verifications, stale)
    assert verifications.find([ARTIFACT]) == before


def test_only_failed_verifications_are_queued_again(verifications: VerificationStore) -> None:
    verifications.submit(ARTIFACT, TARGET)
    claim = claim_as(verifications, "w")
    verifications.again(ARTIFACT)
    assert state(verifications) is VerificationState.RUNNING
    verifications.finish(claim, passed=False, result={})
    verifications.again(ARTIFACT)
    assert claim_as(verifications, "w").verification.attempt == 1


def test_verifications_of_unused_artifacts_are_deleted(builds: BuildStore, verifications: VerificationStore) -> None:
    built(builds, is_verified=False)
    verifications.submit(OTHER, TARGET)
    assert verifications.forget() == 1
    assert verifications.find([ARTIFACT, OTHER]).keys() == {ARTIFACT}


def test_a_verification_for_a_pool_is_claimed_only_there_and_does_not_block_serving(
    builds: BuildStore, verifications: VerificationStore
) -> None:
    built(builds, is_verified=True)
    for pool in ("old", "new"):
        verifications.submit(ARTIFACT, TARGET, pool)
    assert not verifications.any_to_claim("another", [TARGET])
    assert verifications.claim("w", "another", LEASE_S, [TARGET]) is None
    claim = verifications.claim("w", "old", LEASE_S, [TARGET])
    assert claim is not None
    verifications.heartbeat(claim, LEASE_S)
    verifications.finish(claim, passed=False, result=RESULT)
    found = verifications.of_pools(ARTIFACT)
    assert {pool: each.state for pool, each in found.items()} == {
        "old": VerificationState.FAILED,
        "new": VerificationState.QUEUED,
    }
    assert len(builds.serving("a", None, [TARGET])) == 1
    assert builds.unverified([ARTIFACT]) == verifications.find([ARTIFACT]) == {}


def test_deciding_verifications_are_claimed_first(verifications: VerificationStore, clock: ManualClock) -> None:
    verifications.submit(OTHER, TARGET, "pool")
    clock.advance(1)
    verifications.submit(ARTIFACT, TARGET)
    assert [claim_as(verifications, "w").artifact for _ in range(2)] == [ARTIFACT, OTHER]


def test_two_workers_never_claim_the_same_verification(
    database: Database, clock: ManualClock, verifications: VerificationStore
) -> None:
    artifacts = [digest_of(str(number).encode()) for number in range(20)]
    for artifact in artifacts:
        verifications.submit(artifact, TARGET)
    taken: list[str] = []

    def take() -> None:
        store = VerificationStore(database, clock)
        while (claim := store.claim("w", "pool", LEASE_S, [TARGET])) is not None:
            taken.append(claim.artifact)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(artifacts)
