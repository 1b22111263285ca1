"""Tests of the result of a verification, depending on the behavior of the artifact and of its process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from service.cache import OciLayout
from service.compiler.children.locked import Poll
from service.core.digest import Digest, digest_of
from service.core.errors import BuildCrashed, DatabaseUnreachable, StoreUnreachable, Untrusted, VerificationFailed
from service.core.settings import Settings
from service.core.verification.jobs import Verification, VerificationState
from service.db import Database, VerificationClaim, VerificationStore
from service.workers import verifier
from service.workers.verifier import Verifier, Verify
from tests.support.waiting import GIVE_UP_S, eventually

ARTIFACT, TARGET = digest_of(b"artifact"), "x86-64-v3"
RESULT = {"summary": "all values are equal"}


class Bench:
    """A table of verifications, and a worker."""

    def __init__(self, folder: Path, lease_s: float = 0.3) -> None:
        self.settings = Settings(data_dir=folder, lease_s=lease_s, heartbeat_s=10 * GIVE_UP_S)
        database = Database(self.settings.url_of_database)
        database.migrate()
        self.verifications = VerificationStore(database, max_attempts=2)
        self.verifications.submit(ARTIFACT, TARGET)
        self.layout, self.stop = OciLayout(self.settings.store_dir), threading.Event()

    @property
    def state(self) -> VerificationState:
        return self.found.state

    @property
    def found(self) -> Verification:
        return self.verifications.find([ARTIFACT])[ARTIFACT]

    def work(self, verify: Verify, target: str = TARGET) -> bool:
        worker = Verifier(
            self.verifications, self.layout, self.settings, "w", pool="p", targets=[target], verify=verify
        )
        return worker.work_once(self.stop)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(verifier, "_TROUBLE_S", 0.0)
    return Bench(tmp_path)


def raising(error: Exception) -> Verify:
    def verify(layout: OciLayout, artifact: Digest, settings: Settings, poll: Poll) -> dict[str, Any]:
        raise error

    return verify


def succeed(layout: OciLayout, artifact: Digest, settings: Settings, poll: Poll) -> dict[str, Any]:
    assert artifact == ARTIFACT
    poll()
    return RESULT


def test_right_outputs_pass(bench: Bench) -> None:
    assert bench.work(succeed)
    assert (bench.state, bench.found.result) == (VerificationState.PASSED, {**RESULT, "pool": "p"})
    assert not bench.work(succeed)


def test_an_artifact_for_another_target_is_ignored(bench: Bench) -> None:
    assert not bench.work(succeed, "aarch64")
    assert bench.state is VerificationState.QUEUED


@pytest.mark.parametrize("error", [VerificationFailed("1 of 2 differs"), Untrusted("nobody signed it")])
def test_wrong_outputs_or_a_missing_signature_fail(bench: Bench, error: Exception) -> None:
    bench.work(raising(error))
    assert (bench.state, bench.found.summary) == (VerificationState.FAILED, str(error))


@pytest.mark.parametrize("error", [BuildCrashed("signal 9"), ValueError("what?")])
def test_an_artifact_that_ends_its_process_is_retried(bench: Bench, error: Exception) -> None:
    bench.work(raising(error))
    assert (bench.state, bench.found.attempt) == (VerificationState.QUEUED, 1)
    bench.work(raising(error))
    assert bench.state is VerificationState.FAILED
    assert str(error) in bench.found.summary


@pytest.mark.parametrize("error", [StoreUnreachable(), DatabaseUnreachable()])
def test_an_outage_is_not_counted_as_an_attempt(bench: Bench, error: Exception) -> None:
    for _ in range(3):
        bench.work(raising(error))
    assert (bench.state, bench.found.attempt) == (VerificationState.QUEUED, 0)


def test_a_worker_that_ends_releases_the_verification(bench: Bench) -> None:
    def verify(layout: OciLayout, artifact: Digest, settings: Settings, poll: Poll) -> dict[str, Any]:
        bench.stop.set()
        poll()
        raise AssertionError("it goes on")

    bench.work(verify)
    assert (bench.state, bench.found.attempt) == (VerificationState.QUEUED, 0)


def test_the_lease_is_renewed_during_a_long_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, renewed = Bench(tmp_path, lease_s=12), [0]
    heartbeat = bench.verifications.heartbeat

    def count(claim: VerificationClaim, lease_s: float) -> None:
        heartbeat(claim, lease_s)
        renewed[0] += 1

    monkeypatch.setattr(bench.verifications, "heartbeat", count)

    def verify(layout: OciLayout, artifact: Digest, settings: Settings, poll: Poll) -> dict[str, Any]:
        def is_renewed() -> bool:
            poll()
            return renewed[0] > 0

        eventually(is_renewed)  # the lease is renewed before it ends, even if heartbeats are rare
        assert not bench.verifications.any_to_claim("p", [TARGET])
        return RESULT

    bench.work(verify)
    assert bench.state is VerificationState.PASSED


def test_a_worker_that_lost_its_lease_writes_no_result(bench: Bench) -> None:
    def verify(layout: OciLayout, artifact: Digest, settings: Settings, poll: Poll) -> dict[str, Any]:
        threading.Event().wait(0.4)
        assert bench.verifications.claim("other", "p", 30, [TARGET]) is not None
        return RESULT

    bench.work(verify)
    assert (bench.state, bench.found.worker) == (VerificationState.RUNNING, "other")
