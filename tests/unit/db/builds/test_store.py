"""Tests of the builds table from the view of a client that requests builds, on SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from service.core.builds.build import BuildCanceled, BuildState, Stage
from service.core.digest import digest_of
from service.core.errors import BuildTimedOut, InvalidInput, NotFound
from service.db import BuildStore, Claim
from tests.support.build_inputs import TARGET, inputs
from tests.support.manual_clock import ManualClock

ARTIFACT = digest_of(b"artifact")
OTHER_ARTIFACT = digest_of(b"other artifact")
LEASE_S = 30.0


def claimed(builds: BuildStore) -> Claim:
    claim = builds.claim("worker", LEASE_S)
    assert claim is not None
    return claim


def succeed(builds: BuildStore, artifact: str = ARTIFACT) -> str:
    claim = claimed(builds)
    builds.finish(claim, artifact=digest_of(artifact.encode()) if ":" not in artifact else ARTIFACT)
    return claim.build.id


def test_new_inputs_create_a_queued_build(builds: BuildStore, clock: ManualClock) -> None:
    build, created = builds.submit(inputs(), "mobilenet", 1)
    assert created
    assert (build.state, build.model, build.version, build.attempt) == (BuildState.QUEUED, "mobilenet", 1, 0)
    assert (build.key, build.source, build.target) == (inputs().key, inputs().source, TARGET)
    assert build.created_at == clock.now()
    assert builds.get(build.id) == build


def test_the_same_inputs_reuse_a_queued_running_or_succeeded_build(builds: BuildStore) -> None:
    first, _ = builds.submit(inputs(), "a", 1)
    assert builds.submit(inputs(), "a", 1) == (first, False)
    claim = claimed(builds)
    running, created = builds.submit(inputs(), "a", 1)
    assert (running.id, running.state, created) == (first.id, BuildState.RUNNING, False)
    builds.finish(claim, artifact=ARTIFACT)
    answered, created = builds.submit(inputs(), "a", 1)
    assert (answered.id, answered.artifact, created) == (first.id, ARTIFACT, False)


@pytest.mark.parametrize("other", [inputs(source="b"), inputs(target="aarch64"), inputs(numerics="xnnpack")])
def test_other_inputs_create_another_build(builds: BuildStore, other: object) -> None:
    builds.submit(inputs(), "a", 1)
    assert builds.submit(other, "a", 1)[1]  # type: ignore[arg-type]


def test_two_tenants_do_not_share_a_build(builds: BuildStore) -> None:
    first, _ = builds.submit(inputs(), "acme~a", 1)
    other, created = builds.submit(inputs(), "beta~a", 1)
    assert created
    assert builds.submit(inputs(), "acme~b", 1)[0].id == first.id != other.id
    assert builds.submit(inputs(), "a", 1)[1], "the operator does not share a tenant's build either"


def test_a_failed_build_is_not_reused(builds: BuildStore) -> None:
    first, _ = builds.submit(inputs(), "a", 1)
    builds.finish(claimed(builds), error=BuildTimedOut(stage="codegen", hint="raise the limit"))
    second, created = builds.submit(inputs(), "a", 1)
    assert created
    assert second.id != first.id
    failed = builds.get(first.id)
    assert failed.state is BuildState.FAILED
    assert failed.error is not None
    assert (failed.error["code"], failed.error["stage"]) == ("build_timed_out", "codegen")


def test_a_canceled_build_is_not_reused(builds: BuildStore) -> None:
    first, _ = builds.submit(inputs(), "a", 1)
    assert builds.cancel(first.id).state is BuildState.CANCELED
    assert builds.submit(inputs(), "a", 1)[1]


@pytest.fixture
def alike(builds: BuildStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of two builds, which differ from the fifth character on."""
    ids = ["abcd0" + "1" * 27, "abcd1" + "1" * 27]
    made = map(UUID, ids)
    monkeypatch.setattr("service.db.builds.store.uuid.uuid4", lambda: next(made))
    for source in ("one", "two"):
        builds.submit(inputs(source), "a", 1)
    return ids


def test_a_prefix_of_an_id_is_accepted(builds: BuildStore, alike: list[str]) -> None:
    assert [builds.get(id[:5]).id for id in alike] == alike
    assert builds.cancel(alike[0][:5]).id == alike[0]
    assert builds.events(alike[0][:6]) == builds.events(alike[0])


def test_an_ambiguous_prefix_is_refused(builds: BuildStore, alike: list[str]) -> None:
    with pytest.raises(InvalidInput, match="the ids of several builds begin with 'abcd'"):
        builds.cancel("abcd")
    assert {builds.get(id).state for id in alike} == {BuildState.QUEUED}


@pytest.mark.parametrize("id", ["", "abc", "%%%%%", "____0", "bcd01"])
def test_an_unknown_prefix_is_not_found(builds: BuildStore, alike: list[str], id: str) -> None:
    with pytest.raises(NotFound):
        builds.get(id)


def test_builds_that_count_values_are_listed_only_on_request(builds: BuildStore) -> None:
    served, _ = builds.submit(inputs(), "a", 1)
    counting, _ = builds.submit(replace(inputs(), options={"counts": True}), "a", 1)
    other, _ = builds.submit(replace(inputs("two"), options={"batch": 8}), "a", 2)
    for model in ("a", None):
        assert [each.id for each in builds.list(model)[0]] == [other.id, served.id]
        assert [each.id for each in builds.list(model, counting=True)[0]] == [other.id, counting.id, served.id]
    assert [each.id for each in builds.counting("a", 1)] == [counting.id]
    assert builds.counting("a", 2) == []


def test_a_queued_build_that_was_canceled_is_never_claimed(builds: BuildStore) -> None:
    builds.cancel(builds.submit(inputs(), "a", 1)[0].id)
    assert builds.claim("worker", LEASE_S) is None


def test_a_running_build_is_canceled_at_its_workers_next_check(builds: BuildStore) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    canceled = builds.cancel(build.id)
    assert (canceled.state, canceled.cancel_requested) == (BuildState.RUNNING, True)
    with pytest.raises(BuildCanceled):
        builds.heartbeat(claim, LEASE_S)
    with pytest.raises(BuildCanceled):
        builds.progress(claim, Stage.IMPORT)
    builds.finish(claim, canceled=True)
    assert builds.get(build.id).state is BuildState.CANCELED


def test_canceling_twice_or_too_late_changes_nothing(builds: BuildStore) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    builds.cancel(build.id)
    assert builds.cancel(build.id) == builds.get(build.id)
    builds.finish(claim, artifact=ARTIFACT)
    assert builds.cancel(build.id).state is BuildState.SUCCEEDED


def test_a_new_request_withdraws_a_cancellation(builds: BuildStore) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    builds.cancel(build.id)
    again, created = builds.submit(inputs(), "b", 1)
    assert (again.id, created, again.cancel_requested) == (build.id, False, False)
    builds.heartbeat(claim, LEASE_S)


def test_a_worker_that_stopped_before_the_cancellation_was_withdrawn_queues_the_build(builds: BuildStore) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    builds.cancel(build.id)
    builds.submit(inputs(), "a", 1)
    builds.finish(claim, canceled=True)
    assert builds.get(build.id).state is BuildState.QUEUED
    assert claimed(builds).build.attempt == 1


def test_an_unknown_build_is_not_found(builds: BuildStore) -> None:
    for question in (builds.get, builds.cancel, builds.events):
        with pytest.raises(NotFound):
            question("no-such-build")


def test_a_build_ends_in_one_way_only(builds: BuildStore) -> None:
    builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    with pytest.raises(ValueError, match="give one"):
        builds.finish(claim)
    with pytest.raises(ValueError, match="give one"):
        builds.finish(claim, artifact=ARTIFACT, canceled=True)


def test_the_list_is_newest_first_and_comes_in_pages(builds: BuildStore) -> None:
    ids = [builds.submit(inputs(source=str(number)), "a", 1)[0].id for number in range(5)]
    first, cursor = builds.list(limit=2)
    second, cursor = builds.list(limit=2, cursor=cursor)
    third, end = builds.list(limit=2, cursor=cursor)
    assert [build.id for build in first + second + third] == ids[::-1]
    assert end is None


def test_a_page_that_ends_with_the_list_is_the_last(builds: BuildStore) -> None:
    builds.submit(inputs(), "a", 1)
    assert builds.list(limit=1)[1] is None


def test_the_list_is_stable_while_builds_are_added(builds: BuildStore) -> None:
    old = [builds.submit(inputs(source=str(number)), "a", 1)[0].id for number in range(3)]
    _, cursor = builds.list(limit=1)
    builds.submit(inputs(source="new"), "a", 1)
    rest, _ = builds.list(cursor=cursor)
    assert [build.id for build in rest] == old[1::-1]


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "٣", "9" * 30])
def test_an_invalid_cursor_is_refused(builds: BuildStore, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        builds.list(cursor=cursor)


def test_the_list_can_be_filtered(builds: BuildStore) -> None:
    mine, _ = builds.submit(inputs(source="mine"), "mine", 1)
    builds.submit(inputs(source="theirs"), "theirs", 1)
    claimed(builds)
    assert [build.id for build in builds.list(model="mine")[0]] == [mine.id]
    assert [build.model for build in builds.list(state=BuildState.QUEUED)[0]] == ["theirs"]
    assert builds.list(model="mine", state=BuildState.QUEUED) == ([], None)


def test_a_shared_build_is_listed_for_each_requester(builds: BuildStore) -> None:
    shared, _ = builds.submit(inputs(), "first", 1)
    builds.submit(inputs(), "second", 7)
    (listed,), _ = builds.list(model="second")
    assert (listed.id, listed.model, listed.version) == (shared.id, "second", 7)
    assert builds.get(shared.id).model == "first"


def test_only_succeeded_builds_serve(builds: BuildStore) -> None:
    builds.submit(inputs(), "a", 1)
    assert builds.serving("a", 1, [TARGET]) == []
    succeed(builds)
    (serving,) = builds.serving("a", 1, [TARGET])
    assert serving.artifact == ARTIFACT
    assert builds.serving("a", 1, ["aarch64"]) == []
    assert builds.serving("a", 2, [TARGET]) == []
    assert builds.serving("b", 1, [TARGET]) == []
    assert builds.serving("a", 1, []) == []


def test_the_latest_request_serves_first(builds: BuildStore) -> None:
    reference, _ = builds.submit(inputs(), "a", 1)
    other, _ = builds.submit(inputs(numerics="xnnpack"), "a", 1)
    succeed(builds)
    succeed(builds, "other")
    assert [build.id for build in builds.serving("a", 1, [TARGET])] == [other.id, reference.id]
    builds.submit(inputs(), "a", 1)
    assert [build.id for build in builds.serving("a", 1, [TARGET])] == [reference.id, other.id]


def test_without_a_version_the_newest_version_serves_first(builds: BuildStore) -> None:
    builds.submit(inputs(source="two"), "a", 2)
    builds.submit(inputs(source="one"), "a", 1)
    succeed(builds)
    succeed(builds)
    assert [build.version for build in builds.serving("a", None, [TARGET])] == [2, 1]


def test_a_shared_build_serves_each_requester(builds: BuildStore) -> None:
    builds.submit(inputs(), "first", 1)
    builds.submit(inputs(), "second", 7)
    succeed(builds)
    (serving,) = builds.serving("second", None, [TARGET])
    assert (serving.model, serving.version) == ("second", 7)


def test_a_build_with_a_lost_artifact_neither_serves_nor_is_reused(builds: BuildStore) -> None:
    lost, _ = builds.submit(inputs(), "a", 1)
    succeed(builds)
    assert [build.id for build in builds.invalidate(ARTIFACT)] == [lost.id]
    assert builds.serving("a", 1, [TARGET]) == []
    assert builds.get(lost.id).invalidated
    again, created = builds.submit(inputs(), "a", 1)
    assert created
    succeed(builds)
    assert [build.id for build in builds.serving("a", 1, [TARGET])] == [again.id]


def test_invalidating_twice_is_idempotent(builds: BuildStore) -> None:
    builds.submit(inputs(), "a", 1)
    succeed(builds)
    builds.invalidate(ARTIFACT)
    assert builds.invalidate(ARTIFACT) == []
    assert builds.invalidate(OTHER_ARTIFACT) == []


def test_the_artifacts_of_valid_builds_are_listed(builds: BuildStore) -> None:
    builds.submit(inputs(), "a", 1)
    assert builds.artifacts() == []
    succeed(builds)
    assert builds.artifacts() == [ARTIFACT]
    builds.invalidate(ARTIFACT)
    assert builds.artifacts() == []


def test_requests_are_recorded(builds: BuildStore, clock: ManualClock) -> None:
    build, _ = builds.submit(inputs(), "first", 1)
    asked_at = clock.now()
    clock.advance(5)
    builds.submit(inputs(), "second", 7)
    assert builds.requests(build.id) == [("first", 1, asked_at), ("second", 7, clock.now())]
    clock.advance(5)
    builds.submit(inputs(), "first", 1)
    assert builds.requests(build.id)[-1] == ("first", 1, clock.now())


def test_a_restored_build_can_be_reused(builds: BuildStore, clock: ManualClock) -> None:
    question, requests = inputs(), [("a", 1, clock.now()), ("b", 3, clock.now())]
    assert builds.restore(question, question.key, ARTIFACT, requests)
    assert not builds.restore(question, question.key, ARTIFACT, requests)
    answer, created = builds.submit(question, "c", 1)
    assert (answer.artifact, answer.state, created) == (ARTIFACT, BuildState.SUCCEEDED, False)
    assert [build.version for build in builds.serving("b", None, [TARGET])] == [3]
    assert [request[:2] for request in builds.requests(answer.id)] == [("a", 1), ("b", 3), ("c", 1)]


def test_an_invalidated_build_is_not_restored(builds: BuildStore, clock: ManualClock) -> None:
    builds.submit(inputs(), "a", 1)
    succeed(builds)
    builds.invalidate(ARTIFACT)
    assert not builds.restore(inputs(), inputs().key, ARTIFACT, [("a", 1, clock.now())])


def test_background_builds_are_claimed_last(builds: BuildStore) -> None:
    variant, _ = builds.submit(replace(inputs("a"), options={"batch": 8}), "a", 1)
    tuned, _ = builds.submit(replace(inputs("a"), options={"tune_s": 60.0}), "a", 1)
    first, _ = builds.submit(inputs("b"), "b", 1)
    second, _ = builds.submit(replace(inputs("c"), options={}), "c", 1)
    claims = [claimed(builds).build.id for _ in range(4)]
    assert claims == [first.id, second.id, variant.id, tuned.id]
