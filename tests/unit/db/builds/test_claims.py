"""Tests of a build's history, on SQLite and PostgreSQL."""

from __future__ import annotations

import pytest

from service.core.builds.build import Stage
from service.core.digest import digest_of
from service.core.errors import BuildCrashed
from service.db import BuildStore, Claim
from service.db.builds import claims
from tests.support.build_inputs import inputs
from tests.support.manual_clock import ManualClock

LEASE_S = 30.0


@pytest.fixture
def claim(builds: BuildStore) -> Claim:
    builds.submit(inputs(), "a", 1)
    claim = builds.claim("worker", LEASE_S)
    assert claim is not None
    return claim


def test_the_history_is_in_order(builds: BuildStore, claim: Claim, clock: ManualClock) -> None:
    builds.progress(claim, Stage.IMPORT)
    builds.progress(claim, Stage.IMPORT, 0.5)
    builds.log(claim, "reading 12 operators")
    clock.advance(2)
    builds.progress(claim, Stage.CODEGEN)
    builds.finish(claim, artifact=digest_of(b"artifact"))
    events = builds.events(claim.build.id)
    assert [(event.kind, dict(event.data)) for event in events] == [
        ("state", {"state": "queued"}),
        ("state", {"state": "running", "attempt": 1, "owner": "worker"}),
        ("stage", {"stage": "import", "fraction": 0.0}),
        ("progress", {"stage": "import", "fraction": 0.5}),
        ("log", {"line": "reading 12 operators"}),
        ("stage", {"stage": "codegen", "fraction": 0.0}),
        ("state", {"state": "succeeded", "artifact": digest_of(b"artifact")}),
    ]
    assert [event.sequence for event in events] == list(range(1, 8))
    assert (events[5].at - events[4].at).total_seconds() == 2


def test_a_reader_resumes_where_it_stopped(builds: BuildStore, claim: Claim) -> None:
    builds.log(claim, "first")
    last = builds.events(claim.build.id)[-1].sequence
    assert builds.events(claim.build.id, after=last) == []
    builds.log(claim, "second")
    (event,) = builds.events(claim.build.id, after=last)
    assert (event.sequence, event.data["line"]) == (last + 1, "second")


def test_each_build_counts_for_itself(builds: BuildStore, claim: Claim) -> None:
    builds.log(claim, "of the first")
    other, _ = builds.submit(inputs(source="other"), "b", 1)
    assert [event.sequence for event in builds.events(other.id)] == [1]


def test_a_repeated_report_adds_no_event(builds: BuildStore, claim: Claim) -> None:
    builds.progress(claim, Stage.IMPORT, 0.5)
    before = builds.events(claim.build.id)
    builds.progress(claim, Stage.IMPORT, 0.5)
    assert builds.events(claim.build.id) == before


def test_the_build_shows_its_stage(builds: BuildStore, claim: Claim) -> None:
    builds.progress(claim, Stage.IMPORT, 0.25)
    build = builds.get(claim.build.id)
    assert (build.stage, build.progress) == (Stage.IMPORT, 0.25)


@pytest.mark.parametrize(("fraction", "shown"), [(-1.0, 0.0), (7.0, 1.0)])
def test_a_fraction_is_clamped_to_0_and_1(builds: BuildStore, claim: Claim, fraction: float, shown: float) -> None:
    builds.progress(claim, Stage.IMPORT, fraction)
    assert builds.get(claim.build.id).progress == shown


def test_the_reason_of_a_failure_is_in_the_history(builds: BuildStore, claim: Claim) -> None:
    builds.finish(claim, error=BuildCrashed("killed by signal 11", stage="codegen", op="CONV_2D"))
    event = builds.events(claim.build.id)[-1]
    assert event.data["state"] == "failed"
    assert event.data["error"] == {
        "code": "build_crashed",
        "message": "killed by signal 11",
        "stage": "codegen",
        "op": "CONV_2D",
    }


def test_a_log_line_may_contain_any_text(builds: BuildStore, claim: Claim) -> None:
    line = "naïve \x00 \x1b[31m 😀 \ud800"  # an untrusted model may have a tensor of this name
    builds.log(claim, line)
    assert builds.events(claim.build.id)[-1].kind == "log"
    builds.finish(claim, error=BuildCrashed(line, tensor=line))
    assert builds.get(claim.build.id).error is not None


def test_a_long_log_is_cut(builds: BuildStore, claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_MAX_EVENTS", 5)
    monkeypatch.setattr(claims, "_MAX_LINE", 8)
    for number in range(10):
        builds.log(claim, f"{number}" * 100)
        builds.progress(claim, Stage.IMPORT, number / 10)
    builds.finish(claim, artifact=digest_of(b"artifact"))
    events = builds.events(claim.build.id)
    assert max(len(event.data["line"]) for event in events if event.kind == "log") == 8
    assert [event.kind for event in events] == ["state", "state", "log", "stage", "log", "state"]
    assert builds.get(claim.build.id).progress == 1.0
