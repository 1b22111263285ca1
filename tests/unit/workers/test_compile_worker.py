"""Tests of one worker: how it claims, ends and releases builds."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.compiler.lowering import toolchain
from service.core.builds.build import BuildCanceled, BuildState, LeaseLost, Stage
from service.core.clock import SystemClock
from service.core.digest import Digest
from service.core.errors import (
    BuildCrashed,
    DatabaseBusy,
    DatabaseUnreachable,
    OctetError,
    StorageFull,
    StoreUnreachable,
    UnsupportedOperator,
)
from service.core.settings import Settings
from service.core.target import parse_target
from service.db import BuildStore, Claim
from service.workers.compile_worker import CompileWorker
from tests.support.blobs import damage_blob
from tests.support.building import TARGET, CompileSetup, Endless, raising, succeed
from tests.support.manual_clock import ManualClock
from tests.support.waiting import GIVE_UP_S, eventually


@pytest.fixture
def workshop(tmp_path: Path) -> CompileSetup:
    return CompileSetup(tmp_path)


def scratch(workshop: CompileSetup) -> list[Path]:
    directory = workshop.settings.scratch_dir
    return list(directory.iterdir()) if directory.exists() else []


def log(workshop: CompileSetup, id: str) -> list[str]:
    return [event.data["line"] for event in workshop.builds.events(id) if event.kind == "log"]


def error_of(workshop: CompileSetup, id: str) -> dict[str, Any]:
    build = workshop.builds.get(id)
    assert build.state is BuildState.FAILED
    assert build.error is not None
    return dict(build.error)


def test_without_builds_there_is_nothing_to_do(workshop: CompileSetup) -> None:
    assert not workshop.work()


def test_a_build_succeeds(workshop: CompileSetup) -> None:
    submitted = workshop.ask()
    assert workshop.work()
    build = workshop.builds.get(submitted.id)
    assert build.state is BuildState.SUCCEEDED
    assert build.artifact is not None
    assert workshop.layout.manifest(build.artifact)
    stages = [event.data["stage"] for event in workshop.builds.events(submitted.id) if event.kind == "stage"]
    assert stages == ["fetch", "codegen"]


def test_the_compiler_gets_the_requested_inputs(workshop: CompileSetup) -> None:
    build = workshop.ask(b"my model")
    workshop.work()
    assert log(workshop, build.id) == [f"b'my model' for {TARGET}"]


def test_builds_are_done_in_the_order_of_their_requests(workshop: CompileSetup) -> None:
    first, second = workshop.ask(b"1"), workshop.ask(b"2")
    workshop.work()
    states = [workshop.builds.get(build.id).state for build in (first, second)]
    assert states == [BuildState.SUCCEEDED, BuildState.QUEUED]


def test_an_idle_worker_reports_it_once(tmp_path: Path) -> None:
    workshop, counts = CompileSetup(tmp_path, compiler_idle_s=0.01), [0]

    def idle() -> None:
        counts[0] += 1

    worker = CompileWorker(workshop.builds, workshop.layout, workshop.settings, "worker", compile=succeed, on_idle=idle)
    thread = threading.Thread(target=worker.run, args=(workshop.stop,))
    thread.start()
    try:
        eventually(lambda: counts[0] == 1)
        time.sleep(0.5)  # long enough to look for builds twice
        assert counts[0] == 1
        workshop.ask()
        eventually(lambda: counts[0] == 2)
    finally:
        workshop.stop.set()
        thread.join()


def test_the_index_contains_which_models_requested_the_artifact(workshop: CompileSetup) -> None:
    build = workshop.ask()
    workshop.work()
    artifact = workshop.builds.get(build.id).artifact
    annotations = next(entry.annotations for entry in workshop.layout.index() if entry.digest == artifact)
    assert build.key in annotations.values()
    assert any("digits:1" in name for name in annotations)


@pytest.mark.parametrize(
    "compile", [succeed, raising(UnsupportedOperator()), raising(RuntimeError()), raising(BuildCanceled())]
)
def test_scratch_is_empty_after_a_build(workshop: CompileSetup, compile: Any) -> None:
    workshop.ask()
    workshop.work(compile)
    assert scratch(workshop) == []


def test_a_failed_build_has_a_reason(workshop: CompileSetup) -> None:
    build = workshop.ask()
    workshop.work(raising(UnsupportedOperator("no LSTM", stage="import", op="LSTM", tensor="state", hint="unroll")))
    assert error_of(workshop, build.id) == {
        "code": "unsupported_operator",
        "message": "no LSTM",
        "stage": "import",
        "op": "LSTM",
        "tensor": "state",
        "hint": "unroll",
    }


def test_a_failure_without_a_stage_gets_the_stage_that_was_begun_last(workshop: CompileSetup) -> None:
    def crash(request: Any, layout: Any, scratch: Any, progress: Any, settings: Settings) -> Digest:
        progress.stage(Stage.LINK)
        raise BuildCrashed

    build = workshop.ask()
    workshop.work(crash)
    assert error_of(workshop, build.id)["stage"] == "link"


def test_an_unexpected_error_fails_the_build_without_details(workshop: CompileSetup) -> None:
    build = workshop.ask()
    workshop.work(raising(ZeroDivisionError("/home/somebody/secret.py")))
    error = error_of(workshop, build.id)
    assert error["code"] == "build_failed"
    assert "ZeroDivisionError" in error["message"]
    assert "secret" not in str(error)


def test_after_a_failure_the_next_build_succeeds(workshop: CompileSetup) -> None:
    workshop.ask(b"1")
    second = workshop.ask(b"2")
    workshop.work(raising(RuntimeError()))
    workshop.work()
    assert workshop.builds.get(second.id).state is BuildState.SUCCEEDED


def test_a_missing_model_file_fails_the_build(workshop: CompileSetup) -> None:
    build = workshop.ask()
    workshop.layout.blobs.delete(build.source)
    workshop.work()
    error = error_of(workshop, build.id)
    assert (error["code"], error["stage"], error["hint"]) == ("not_found", "fetch", "push it again")


@pytest.mark.parametrize("error", [StoreUnreachable(), DatabaseUnreachable(), DatabaseBusy()])
def test_an_outage_does_not_fail_the_build(workshop: CompileSetup, error: OctetError) -> None:
    """The build is released, and the attempt is not counted."""
    submitted = workshop.ask()
    workshop.stop.set()  # otherwise the worker would wait for the outage to pass
    workshop.work(raising(error))
    build = workshop.builds.get(submitted.id)
    assert (build.state, build.attempt) == (BuildState.QUEUED, 0)
    workshop.stop.clear()
    assert workshop.work()
    assert workshop.builds.get(submitted.id).state is BuildState.SUCCEEDED


def test_a_damaged_model_file_fails_the_build(workshop: CompileSetup) -> None:
    build = workshop.ask()
    damage_blob(workshop.layout.root, build.source)
    workshop.work()
    assert error_of(workshop, build.id)["code"] == "corrupt_blob"


def test_a_build_for_an_older_compiler_version_is_resubmitted(workshop: CompileSetup) -> None:
    inputs = replace(ask_inputs(workshop), toolchain={"octet_compiler": "older"})
    old, _ = workshop.builds.submit(inputs, "digits", 1)
    workshop.builds.submit(inputs, "numbers", 3)
    workshop.work()
    error = error_of(workshop, old.id)
    assert "no longer installed" in error["message"]
    workshop.work()
    for name, version in (("digits", 1), ("numbers", 3)):
        new = workshop.builds.serving(name, version, [TARGET])[0]
        assert new.id in error["hint"]
        assert new.key != old.key


def ask_inputs(workshop: CompileSetup) -> Any:
    workshop.ask()
    claim = workshop.builds.claim("reader", 60)
    assert claim is not None
    workshop.builds.finish(claim, error=OctetError())
    return claim.inputs


def test_a_running_build_that_is_canceled_stops_soon(workshop: CompileSetup) -> None:
    build, compile = workshop.ask(), Endless()
    with workshop.working(compile):
        workshop.builds.cancel(build.id)
        eventually(lambda: workshop.builds.get(build.id).state is BuildState.CANCELED)
    assert type(compile.ended_by) is BuildCanceled


def test_a_running_build_of_a_model_that_was_deleted_stops_soon(workshop: CompileSetup) -> None:
    build, compile = workshop.ask(), Endless()
    workshop.models.push("digits", build.source, "tflite", 7)
    with workshop.working(compile):
        workshop.models.delete("digits")
        eventually(lambda: compile.ended_by is not None)
    assert type(compile.ended_by) is LeaseLost


def test_a_lease_is_renewed_in_time_even_if_heartbeats_are_rare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = CompileSetup(tmp_path, lease_s=12, heartbeat_s=10 * GIVE_UP_S)
    build, renewed, heartbeat = workshop.ask(), [0], workshop.builds.heartbeat

    def count(claim: Claim, lease_s: float) -> None:
        heartbeat(claim, lease_s)
        renewed[0] += 1

    monkeypatch.setattr(workshop.builds, "heartbeat", count)
    with workshop.working(Endless()):
        eventually(lambda: renewed[0] > 0)
        assert workshop.builds.claim("thief", 60) is None
    assert workshop.builds.get(build.id).attempt == 0


def test_a_worker_that_lost_its_lease_stops_and_changes_nothing(tmp_path: Path) -> None:
    workshop = CompileSetup(tmp_path, lease_s=0.6, heartbeat_s=0.2)
    build, compile = workshop.ask(), Endless()
    with workshop.working(compile) as thread:
        claim = steal(workshop, build.id)
        thread.join(GIVE_UP_S)
        assert not thread.is_alive()
        assert workshop.builds.get(build.id).state is BuildState.RUNNING
    assert type(compile.ended_by) is LeaseLost
    workshop.builds.finish(claim, error=OctetError("the thief's own"))
    assert error_of(workshop, build.id)["message"] == "the thief's own"


def steal(workshop: CompileSetup, id: str) -> Any:
    """Claims a build as another worker does when the lease of its owner has expired."""
    clock = ManualClock(SystemClock().now())
    clock.advance(3600)
    thief = BuildStore(workshop.database, clock)
    claim = thief.claim("thief", 7200)
    assert claim is not None
    assert claim.build.id == id
    return claim


def test_a_worker_whose_lease_expired_cannot_finish_the_build(workshop: CompileSetup) -> None:
    build = workshop.ask()

    def sleeps(*arguments: Any) -> Digest:
        steal(workshop, build.id)
        return succeed(*arguments)

    workshop.work(sleeps)
    assert workshop.builds.get(build.id).state is BuildState.RUNNING


def test_a_build_that_kills_its_workers_fails(tmp_path: Path) -> None:
    workshop = CompileSetup(tmp_path, max_build_attempts=2)
    build = workshop.ask()
    for _ in range(2):
        assert workshop.builds.claim("victim", lease_s=-1)
    assert not workshop.work()
    assert error_of(workshop, build.id)["code"] == BuildCrashed.code


def test_progress_is_written_only_when_it_changes(workshop: CompileSetup) -> None:
    build = workshop.ask()

    def busy(request: Any, layout: Any, scratch: Any, progress: Any, settings: Settings) -> Digest:
        for _ in range(1000):
            progress.stage(Stage.CODEGEN, 0.5)
        for step in range(1000):
            progress.stage(Stage.LINK, step / 1000)
        return succeed(request, layout, scratch, progress, settings)

    workshop.work(busy)
    assert len(workshop.builds.events(build.id)) < 40


def test_an_unreachable_database_does_not_end_the_worker(
    workshop: CompileSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = workshop.ask()
    claim, failures = workshop.builds.claim, [StorageFull(), OSError("gone")]
    monkeypatch.setattr("service.workers.compile_worker._TROUBLE_S", 0.01)

    def fails_twice(*build: Any) -> Any:
        if failures:
            raise failures.pop()
        return claim(*build)

    monkeypatch.setattr(workshop.builds, "claim", fails_twice)
    thread = threading.Thread(target=workshop.worker(succeed).run, args=(workshop.stop,))
    thread.start()
    eventually(lambda: workshop.builds.get(build.id).state is BuildState.SUCCEEDED)
    workshop.stop.set()
    thread.join()


def test_a_single_failed_heartbeat_is_not_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = CompileSetup(tmp_path, lease_s=GIVE_UP_S, heartbeat_s=0.1)
    workshop.ask()
    heartbeat, beats = workshop.builds.heartbeat, []

    def flaky(*arguments: Any) -> None:
        beats.append(1)
        if len(beats) == 1:
            raise OSError("busy")
        heartbeat(*arguments)

    monkeypatch.setattr(workshop.builds, "heartbeat", flaky)
    compile = Endless()
    with workshop.working(compile):
        eventually(lambda: len(beats) > 3)
        assert compile.ended_by is None


def small_and_large(workshop: CompileSetup) -> tuple[str, str]:
    """Submits builds of two files, the larger one first."""
    ids = []
    for name, data in (("large", b"a large model" * 100), ("small", b"a small model")):
        version = workshop.models.push(name, workshop.layout.blobs.put_bytes(data), "tflite", len(data))
        inputs = toolchain.build_inputs(version.source, parse_target(TARGET), "litert-reference", {})
        ids.append(workshop.builds.submit(inputs, name, version.number)[0].id)
    return ids[0], ids[1]


def test_a_long_build_is_overtaken_by_the_smallest(tmp_path: Path) -> None:
    workshop, endless = CompileSetup(tmp_path, build_passing_s=0.01), Endless()
    workshop.ask()
    long = workshop.worker(endless)
    thread = threading.Thread(target=long.work_once, args=(workshop.stop,))
    thread.start()
    assert endless.began.wait(GIVE_UP_S)
    beside = CompileWorker(workshop.builds, workshop.layout, workshop.settings, "beside", compile=succeed, passes=long)
    large, small = small_and_large(workshop)
    eventually(long.has_long_build)
    assert beside.work_once(workshop.stop)
    assert workshop.builds.get(small).state is BuildState.SUCCEEDED
    assert workshop.builds.get(large).state is BuildState.QUEUED
    assert beside.work_once(workshop.stop)
    workshop.stop.set()
    thread.join(GIVE_UP_S)
    assert not beside.work_once(threading.Event())  # no long build is running


def test_a_build_that_has_just_begun_is_not_overtaken(workshop: CompileSetup) -> None:
    endless = Endless()
    workshop.ask()
    first = workshop.worker(endless)
    thread = threading.Thread(target=first.work_once, args=(workshop.stop,))
    thread.start()
    assert endless.began.wait(GIVE_UP_S)
    small_and_large(workshop)
    beside = CompileWorker(workshop.builds, workshop.layout, workshop.settings, "beside", compile=succeed, passes=first)
    assert not beside.work_once(workshop.stop)
    workshop.stop.set()
    thread.join(GIVE_UP_S)
