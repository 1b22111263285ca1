"""Several processes share one database, on SQLite and on PostgreSQL. Some of them are killed with SIGKILL."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from service.core.builds.build import BuildState
from service.core.digest import digest_of
from service.db import BuildStore, Claim, Database, ModelStore
from tests.support.build_inputs import inputs
from tests.support.child_process import kill_process, read_line, start_process, wait_for_output
from tests.support.waiting import eventually

PROCESS = "tests.support.database_process"


@pytest.fixture
def builds(database: Database) -> BuildStore:
    return BuildStore(database)


def run_together(*commands: tuple[object, ...]) -> list[list[str]]:
    """Runs several processes and returns the output of each. All begin when the slowest is ready."""
    with ExitStack() as stack:
        processes = [stack.enter_context(start_process(PROCESS, *command)) for command in commands]
        for process in processes:
            assert read_line(process) == "ready"
        for process in processes:
            go_on(process)
        return [wait_for_output(process) for process in processes]


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def claimed(builds: BuildStore) -> Claim:
    """Waits for a build, claims it, and returns the claim."""
    claims: list[Claim | None] = []

    def is_claimed() -> bool:
        claims.append(builds.claim("next", 60.0))
        return claims[-1] is not None

    eventually(is_claimed)
    assert claims[-1] is not None
    return claims[-1]


def test_concurrent_migrations_wait_for_each_other(database_url: str) -> None:
    run_together(*[("migrate", database_url)] * 3)
    database = Database(database_url)
    assert ModelStore(database).push("a", digest_of(b"model"), "tflite", 5).number == 1
    database.close()


def test_no_build_is_claimed_by_two_workers(builds: BuildStore, database_url: str) -> None:
    ids = [builds.submit(inputs(source=str(number)), "a", 1)[0].id for number in range(40)]
    done = run_together(*[("work", database_url, owner) for owner in "ab"])
    assert Counter(id for worker in done for id in worker) == Counter(ids)
    assert {builds.get(id).attempt for id in ids} == {1}
    assert builds.statistics().outcomes == {("x86-64-v3", "succeeded"): 40}


def test_processes_with_the_same_request_create_one_build(builds: BuildStore, database_url: str) -> None:
    created = run_together(*[("submit", database_url, model, 20) for model in "abc"])
    assert sum(map(len, created)) == 20
    for model in "abc":
        assert len(builds.list(model=model)[0]) == 20


def test_processes_that_push_the_same_files_create_one_version_of_each(database: Database, database_url: str) -> None:
    run_together(*[("push", database_url, 20)] * 2)
    versions = ModelStore(database).versions("shared")
    assert [version.number for version in versions] == list(range(20, 0, -1))
    assert len({version.source for version in versions}) == 20


def test_the_build_of_a_killed_worker_is_claimed_after_the_lease(builds: BuildStore, database_url: str) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    with start_process(PROCESS, "claim_and_hang", database_url, 3.0) as process:
        token = int(read_line(process))
        kill_process(process)
    assert builds.claim("impatient", 60.0) is None
    claim = claimed(builds)
    assert (claim.build.id, claim.build.attempt, claim.token) == (build.id, 2, token + 1)
    builds.finish(claim, artifact=digest_of(b"artifact"))


def test_a_worker_whose_lease_expired_changes_nothing(builds: BuildStore, database_url: str) -> None:
    build, _ = builds.submit(inputs(), "a", 1)
    with start_process(PROCESS, "claim_and_hang", database_url, 0.2) as process:
        read_line(process)
        claim = claimed(builds)
        go_on(process)
        assert read_line(process) == "lost"
    builds.finish(claim, artifact=digest_of(b"in time"))
    assert builds.get(build.id).artifact == digest_of(b"in time")


def test_killing_workers_at_any_time_loses_no_build(builds: BuildStore, database_url: str) -> None:
    ids = [builds.submit(inputs(source=str(number)), "a", 1)[0].id for number in range(60)]
    for after_s in (0.0, 0.005, 0.013, 0.029):
        with start_process(PROCESS, "work_forever", database_url, "victim", 0.05) as process:
            assert read_line(process) == "ready"
            time.sleep(after_s)
            kill_process(process)
    with start_process(PROCESS, "work_forever", database_url, "survivor", 60.0):
        eventually(lambda: builds.statistics().outcomes.get(("x86-64-v3", "succeeded")) == len(ids))
    for id in ids:
        build, events = builds.get(id), builds.events(id)
        assert (build.state, build.artifact) == (BuildState.SUCCEEDED, digest_of(id.encode()))
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert [event.data.get("state") for event in events].count("succeeded") == 1
