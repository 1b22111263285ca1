"""SIGKILL at every critical moment: no data is lost, and nothing incomplete is ever served."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.cache import OciLayout
from service.core.digest import digest_of
from tests.integration.serve.conftest import LEASE
from tests.support.serving import (
    INT8,
    OTHERS,
    RUNS_HERE,
    UINT8,
    Served,
    children_of,
    command,
    connect,
    environment,
    model,
    serving,
)
from tests.support.waiting import GIVE_UP_S, eventually

HALF_BYTES = 1 << 20  # size of the incomplete upload; more than the server buffers before it writes


def states(served: Served, id: str) -> list[str]:
    return [event.data["state"] for event in served.events(id) if event.kind == "state"]


def half_written(folder: Path) -> bool:
    """Returns true if the incomplete upload is on disk. Other uploads that come and go are smaller."""
    for upload in (folder / "data" / "store" / "uploads").iterdir():
        with suppress(FileNotFoundError):
            if upload.stat().st_size == HALF_BYTES:
                return True
    return False


def all_blobs_are_whole(store: Path) -> bool:
    layout = OciLayout.open(store)
    return all(digest_of(layout.blobs.read(digest)) == digest for digest in layout.blobs.iterate())


class TestParts:
    """Tests that kill one process of a server, but not the whole server."""

    def test_a_killed_compiler_child_fails_only_its_build(self, served: Served) -> None:
        build = served.push(target=OTHERS[0])
        served.reaches(build["id"], "import")
        eventually(lambda: served.compiler_children() != [])
        for child in served.compiler_children():
            os.kill(child, signal.SIGKILL)
        ended = served.ended(build["id"])
        assert (ended["state"], ended["error"]["code"]) == ("failed", "build_crashed")
        assert ended["error"]["stage"]
        assert ended["error"]["hint"]
        assert served.label(4) == 4

    def test_the_build_of_a_killed_compile_worker_is_done_by_the_next(self, served: Served) -> None:
        build = served.push(target=OTHERS[1])
        served.reaches(build["id"], "import")
        first = served.compile_worker()
        os.kill(first, signal.SIGKILL)
        assert served.label(5) == 5
        ended = served.ended(build["id"])
        assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
        assert served.compile_worker() != first

    def test_scratch_of_killed_processes_is_removed(self, served: Served, folder: Path) -> None:
        eventually(lambda: list((folder / "data" / "scratch").iterdir()) == [])


@dataclass(frozen=True)
class Ruin:
    """The state after a server was killed during a build and an upload."""

    folder: Path
    build: str
    children: Sequence[int]


@pytest.fixture(scope="module")
def ruin(tmp_path_factory: pytest.TempPathFactory) -> Ruin:
    folder = tmp_path_factory.mktemp("ruin")
    with serving(folder, stall_timeout_s=600, **LEASE) as served:  # the upload may take as long as the build
        assert served.ended(served.push(name="earlier")["id"])["state"] == "succeeded"
        with connect(served) as upload:
            upload.sendall(b"PUT /api/v1/models?name=half HTTP/1.1\r\nHost: localhost\r\n")
            upload.sendall(b"Content-Length: %d\r\n\r\n" % (2 * HALF_BYTES) + model(INT8).ljust(HALF_BYTES, b"\0"))
            eventually(lambda: half_written(folder))
            build = served.push(UINT8, target=RUNS_HERE)
            served.reaches(build["id"], "import")
            children = children_of(served.process.pid)
            assert half_written(folder)
            served.kill()
    return Ruin(folder, build["id"], children)


@pytest.fixture(scope="module")
def revived(ruin: Ruin) -> Iterator[Served]:
    with serving(ruin.folder, **LEASE) as served:
        yield served


class TestRevived:
    """The whole service was killed and restarted on the same folder."""

    def test_the_build_is_done(self, revived: Served, ruin: Ruin) -> None:
        assert revived.ended(ruin.build)["state"] == "succeeded"
        assert revived.label(6) == 6

    def test_earlier_models_answer(self, revived: Served) -> None:
        assert revived.label(7, "earlier") == 7

    def test_nothing_is_left_of_the_upload(self, revived: Served, ruin: Ruin) -> None:
        assert list((ruin.folder / "data" / "store" / "uploads").iterdir()) == []
        assert revived.client.get("/api/v1/models/half").status_code == 404

    def test_every_blob_is_whole(self, revived: Served, ruin: Ruin) -> None:
        assert all_blobs_are_whole(ruin.folder / "data" / "store")

    def test_no_process_of_the_killed_service_is_left(self, revived: Served, ruin: Ruin) -> None:
        eventually(lambda: not any(Path(f"/proc/{child}").exists() for child in ruin.children))
        assert revived.compile_worker() in children_of(revived.process.pid)


@pytest.mark.slow
def test_a_stopped_server_releases_its_build(tmp_path: Path) -> None:
    with serving(tmp_path, lease_s=600, heartbeat_s=1, grace_s=GIVE_UP_S) as served:
        build = served.push()
        served.reaches(build["id"], "import")
        seen: list[str] = []
        follower = threading.Thread(target=lambda: seen.extend(event.kind for event in served.events(build["id"])))
        follower.start()
        eventually(lambda: bool(seen))
        assert served.stop() == 0
        follower.join(GIVE_UP_S)
        assert not follower.is_alive()
    # the lease lasts ten minutes, so the build was released rather than expired
    with serving(tmp_path, lease_s=600) as served:
        ended = served.ended(build["id"])
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
        assert states(served, build["id"]) == ["queued", "running", "queued", "running", "succeeded"]


@pytest.mark.slow
def test_a_lost_database_is_rebuilt_from_the_store(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        artifact = served.ended(served.push()["id"])["artifact"]
        served.push(name="numbers")
        served.stop()
    for file in (tmp_path / "data").glob("octet.sqlite3*"):
        file.unlink()
    with serving(tmp_path) as served:
        assert [each["name"] for each in served.client.get("/api/v1/models").json()["models"]] == ["digits", "numbers"]
        assert served.label(8) == 8
        assert served.label(8, "numbers") == 8
        again = served.push()
        assert (again["state"], again["artifact"]) == ("succeeded", artifact)


@pytest.mark.slow
def test_after_its_supervisor_was_killed_the_service_can_be_restarted_on_the_same_port(tmp_path: Path) -> None:
    """systemd and container engines kill it in this way. No process that could restart it remains
    (docs/how-to/service.md).
    """
    with serving(tmp_path) as served:
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        port, children = int(served.url.rpartition(":")[2]), children_of(served.process.pid)
        os.kill(served.process.pid, signal.SIGKILL)
        served.process.wait(GIVE_UP_S)
        eventually(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
        with subprocess.Popen(command(tmp_path, port), env=environment(), stdout=subprocess.PIPE, text=True) as again:
            try:
                assert again.stdout is not None
                assert json.loads(again.stdout.readline())["url"] == served.url
                assert served.label(3) == 3
                again.terminate()
                assert again.wait(GIVE_UP_S) == 0
            finally:
                again.kill()
