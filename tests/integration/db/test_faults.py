"""PostgreSQL is killed, fails over, does not respond, or has no free connection. No work is lost or done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.core.builds.build import BuildState, Stage
from service.core.clock import SystemClock
from service.core.digest import digest_of
from service.core.errors import DatabaseBusy, DatabaseUnreachable
from service.db import BuildStore, Claim, Database, ModelStore
from service.db.tables import model_versions
from tests.support import postgres
from tests.support.bad_network import BadNetwork, bad_network
from tests.support.build_inputs import inputs
from tests.support.child_process import read_line, start_process
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S, eventually

PROCESS = "tests.support.database_process"
LEASE_S = 60.0
ARTIFACT = digest_of(b"artifact")


@pytest.fixture
def network(postgres_server: str) -> Iterator[BadNetwork]:
    with bad_network(Path(postgres_server) / ".s.PGSQL.5432") as network:
        yield network


@pytest.fixture
def near(postgres_schema: str) -> Iterator[Database]:
    """The database, connected directly."""
    database = Database(postgres_schema)
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def far(near: Database, postgres_schema: str, network: BadNetwork) -> Iterator[Database]:
    """The same database, connected through the faulty network."""
    database = Database(beyond(network, postgres_schema), timeout_s=GIVE_UP_S)
    yield database
    database.close()


def beyond(network: BadNetwork, url: str) -> str:
    schema = url.rpartition("%3D")[2]
    return f"postgresql://octet@127.0.0.1:{network.port}/postgres?options=-csearch_path%3D{schema}"


def claimed(builds: BuildStore) -> Claim:
    claim = builds.claim("worker", LEASE_S)
    assert claim is not None
    return claim


def assert_each_is_done_once(builds: BuildStore, ids: list[str]) -> None:
    for id in ids:
        build, events = builds.get(id), builds.events(id)
        assert (build.state, build.artifact) == (BuildState.SUCCEEDED, digest_of(id.encode()))
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert [event.data.get("state") for event in events].count("succeeded") == 1


@pytest.mark.slow
def test_a_kill_of_the_server_during_claims_loses_and_repeats_no_build(postgres_server: str) -> None:
    with postgres.running() as server, ExitStack() as stack:
        url = postgres.database_url(str(server.folder))
        database = Database(url, timeout_s=WORK_TIMEOUT_S)
        database.migrate()
        builds = BuildStore(database)
        for owner in ("a", "b"):
            worker = stack.enter_context(start_process(PROCESS, "work_forever", url, owner, LEASE_S))
            assert read_line(worker) == "ready"
        restarting = stack.enter_context(ThreadPoolExecutor(1))  # the server ends with the thread that started it
        restarts: list[Future[None]] = []

        def restart() -> None:
            server.crash()
            time.sleep(0.3)
            server.start()

        ids = []
        for number in range(120):
            # this also succeeds while the database restarts
            ids.append(builds.submit(inputs(source=str(number)), "a", 1)[0].id)
            if number in (20, 60, 100):
                restarts.append(restarting.submit(restart))
        eventually(lambda: builds.statistics().outcomes.get(("x86-64-v3", "succeeded")) == len(ids), WORK_TIMEOUT_S)
        for each in restarts:
            each.result(WORK_TIMEOUT_S)
        assert_each_is_done_once(builds, ids)
        assert {builds.get(id).attempt for id in ids} == {1}  # no claim was lost until its lease expired
        database.close()


def test_a_promoted_standby_has_everything_that_was_acknowledged(postgres_server: str) -> None:
    with (
        postgres.running("-c", "synchronous_standby_names=*") as primary,  # commits wait for the standby
        postgres.folder() as where,
    ):
        standby = postgres.Server(where)
        standby.copy_of(primary)
        standby.start()
        hosts = f"host={primary.folder},{standby.folder}"
        url = f"postgresql:///postgres?{hosts.replace('/', '%2F')}&user=octet&target_session_attrs=read-write"
        with primary.connected() as admin:
            eventually(lambda: admin.execute("SELECT sync_state FROM pg_stat_replication").fetchone() == ("sync",))
        database = Database(url, timeout_s=WORK_TIMEOUT_S)
        database.migrate()
        builds = BuildStore(database)
        ids = [builds.submit(inputs(source=str(number)), "a", 1)[0].id for number in range(20)]
        claim = claimed(builds)
        primary.crash()
        standby.promote()
        builds.progress(claim, Stage.CODEGEN, 0.5)
        builds.finish(claim, artifact=ARTIFACT)
        assert builds.get(claim.build.id).artifact == ARTIFACT
        assert {build.id for build in builds.list()[0]} == set(ids)
        database.close()
        standby.stop()


CUT = {
    "claim": lambda builds, claim: builds.claim("worker", LEASE_S),
    "finish": lambda builds, claim: builds.finish(claim, artifact=ARTIFACT),
    "release": lambda builds, claim: builds.release(claim),
    "submit": lambda builds, claim: builds.submit(inputs(source="another"), "a", 1),
}


@pytest.mark.parametrize("word", CUT)
def test_a_connection_that_breaks_during_the_commit_is_resolved(
    far: Database, near: Database, network: BadNetwork, word: str
) -> None:
    """The server has committed, but the client does not receive the confirmation."""
    builds, seen = BuildStore(far), BuildStore(near)
    builds.submit(inputs(), "a", 1)
    claim = None if word == "claim" else claimed(builds)
    network.cut_after(b"COMMIT")
    answer = CUT[word](builds, claim)
    (build, *others) = reversed(seen.list()[0])
    states = [event.data["state"] for event in seen.events(build.id) if event.kind == "state"]
    if word == "claim":
        assert (answer.token, answer.build.attempt, states) == (1, 1, ["queued", "running"])
        builds.finish(answer, artifact=ARTIFACT)
    elif word == "finish":
        assert states == ["queued", "running", "succeeded"]
    elif word == "release":
        assert states == ["queued", "running", "queued"]
    else:
        assert [other.id for other in others] == [answer[0].id]


def test_a_change_that_is_not_idempotent_is_not_repeated_if_its_result_is_unknown(
    far: Database, near: Database, network: BadNetwork
) -> None:
    ModelStore(far).push("a", digest_of(b"model"), "tflite", 5)
    network.cut_after(b"COMMIT")
    with pytest.raises(DatabaseUnreachable) as caught:
        ModelStore(far).delete("a")
    assert not caught.value.is_undone
    eventually(lambda: ModelStore(near).list()[0] == [])


@pytest.mark.parametrize("fault", [pytest.param("stall", marks=pytest.mark.slow), "refuse"])
def test_an_unreachable_server_is_abandoned_and_found_again(
    near: Database, postgres_schema: str, network: BadNetwork, fault: str
) -> None:
    """If packets are dropped, a call takes no longer than the time limit and its margin."""
    database = Database(beyond(network, postgres_schema), timeout_s=0.5)
    builds = BuildStore(database)
    build, _ = BuildStore(near).submit(inputs(), "a", 1)
    eventually(lambda: is_reached(builds))  # on a busy machine, half a second may not be enough to connect
    getattr(network, fault)()
    for question in (lambda: builds.get(build.id), lambda: builds.submit(inputs(source="b"), "a", 1)):
        with pytest.raises(DatabaseUnreachable):
            question()
    network.flow()
    network.accept()
    eventually(lambda: is_reached(builds))
    claim = claimed(builds)
    builds.finish(claim, artifact=ARTIFACT)
    assert BuildStore(near).get(build.id).artifact == ARTIFACT
    database.close()


def is_reached(builds: BuildStore) -> bool:
    try:
        return builds.list()[0] != []
    except (DatabaseBusy, DatabaseUnreachable):
        return False


def test_running_work_survives_a_network_that_drops_packets(far: Database, near: Database, network: BadNetwork) -> None:
    builds = BuildStore(far)
    build, _ = builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    network.refuse()
    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(builds.finish, claim, artifact=ARTIFACT)
        time.sleep(0.2)
        assert not ending.done()
        network.accept()
        ending.result(GIVE_UP_S)
    assert BuildStore(near).get(build.id).artifact == ARTIFACT


def test_if_all_connections_are_in_use_a_request_waits_and_is_refused(near: Database, postgres_schema: str) -> None:
    database = Database(postgres_schema, timeout_s=1, connections=2)
    builds = BuildStore(database)
    with database.read(), database.write():
        with pytest.raises(DatabaseBusy, match="connections"):
            builds.submit(inputs(), "a", 1)
        assert BuildStore(near).list()[0] == []
    assert builds.submit(inputs(), "a", 1)[1]
    database.close()


def test_a_server_without_a_free_connection_is_retried(near: Database, postgres_schema: str) -> None:
    role = postgres_schema.rpartition("%3D")[2]
    with near.write() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1")
        connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {role} TO {role}")
        connection.exec_driver_sql(f"GRANT ALL ON ALL TABLES IN SCHEMA {role} TO {role}")
    url = postgres_schema.replace("octet@", f"{role}@")
    first, second = Database(url), Database(url, timeout_s=GIVE_UP_S)
    assert ModelStore(first).list()[0] == []
    with ThreadPoolExecutor(1) as thread:
        listing = thread.submit(ModelStore(second).list)
        time.sleep(0.2)
        assert not listing.done()
        first.close()
        assert listing.result(GIVE_UP_S)[0] == []
    second.close()
    with near.write() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_deadlock_is_resolved_by_retrying_one_transaction(near: Database) -> None:
    for name in "ab":
        ModelStore(near).push(name, digest_of(b"model"), "tflite", 5)
    both_hold_one, tries = threading.Barrier(2), []

    def change(first: str, second: str) -> Callable[[], None]:
        def lock_both() -> None:
            tries.append(first)
            with near.write() as connection:
                connection.execute(lock(first))
                if len(tries) <= 2:
                    both_hold_one.wait(GIVE_UP_S)
                connection.execute(lock(second))

        return lock_both

    def lock(name: str) -> sa.Update:
        return sa.update(model_versions).where(model_versions.c.name == name).values(size_bytes=6)

    with ThreadPoolExecutor(2) as threads:
        for done in [
            threads.submit(near.again, change("a", "b"), False),
            threads.submit(near.again, change("b", "a"), False),
        ]:
            done.result(GIVE_UP_S)
    assert len(tries) == 3


def test_leases_use_the_clock_of_the_database(near: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers with different clocks agree on when a lease has expired."""
    monkeypatch.setattr(SystemClock, "now", lambda self: pytest.fail("the clock of this machine was asked"))
    builds = BuildStore(near)
    builds.submit(inputs(), "a", 1)
    claim = claimed(builds)
    builds.heartbeat(claim, LEASE_S)
    builds.finish(claim, artifact=ARTIFACT)


def test_a_waiting_worker_is_notified_of_a_request_of_another_process(near: Database, far: Database) -> None:
    notifications, stop = BuildStore(far).notifications, threading.Event()
    notifications.look_s = WORK_TIMEOUT_S
    eventually(lambda: notifications.count() > 0)  # the store listens
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(notifications.wait, notifications.count(), stop)
        time.sleep(0.2)
        assert not waiting.done()
        BuildStore(near).submit(inputs(), "a", 1)
        waiting.result(GIVE_UP_S)
    assert claimed(BuildStore(far))


def test_a_request_during_an_outage_of_notifications_is_noticed(
    near: Database, far: Database, network: BadNetwork
) -> None:
    notifications = BuildStore(far).notifications
    eventually(lambda: notifications.count() > 0)
    network.refuse()
    BuildStore(near).submit(inputs(), "a", 1)
    missed = notifications.count()
    network.accept()
    eventually(lambda: notifications.count() > missed)


def test_the_lock_is_shared_by_all_processes_and_released_when_its_holder_ends(
    near: Database, far: Database, network: BadNetwork
) -> None:
    assert near.lock is not None
    assert far.lock is not None
    with ThreadPoolExecutor(1) as thread:
        with near.lock:
            waiting = thread.submit(far.lock.__enter__)
            time.sleep(0.2)
            assert not waiting.done()
        waiting.result(GIVE_UP_S)
        impatient = thread.submit(near.lock.__enter__)
        time.sleep(0.2)
        assert not impatient.done()
        network.cut()
        impatient.result(GIVE_UP_S)
    near.lock.__exit__(None, None, None)
