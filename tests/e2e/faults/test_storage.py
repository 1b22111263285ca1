"""Tests in which the disk, the files and the clock fail: stored data are not lost, and the server recovers."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cache import OciLayout
from service.core.artifacts.artifact import LIBRARY_MEDIA_TYPE
from service.core.digest import Digest
from tests.support.serving import UINT8, Served, command, environment, model, serving
from tests.support.waiting import GIVE_UP_S, eventually

DATABASE_TIMEOUT_S = 1


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mounts a separate file system of this size at `folder`."""
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small disk can be made here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    """Creates a file that fills the disk."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path


@contextmanager
def built(folder: Path, log: Any = None, **settings: Any) -> Iterator[Served]:
    with serving(folder, log, **settings) as served:
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        assert served.label(3) == 3
        yield served


def predicts(served: Served, digit: int = 3) -> bool:
    try:
        return served.label(digit) == digit
    except (AssertionError, httpx.TransportError):
        return False


def model_names(served: Served) -> list[str]:
    try:
        return [each["name"] for each in served.client.get("/api/v1/models").json().get("models", [])]
    except httpx.TransportError:
        return []


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/v2/health/ready").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_a_full_disk_fails_only_what_must_be_stored(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", "64m"), built(tmp_path, lease_s=3, heartbeat_s=0.5) as served:
        ballast = fill(tmp_path / "data")
        upload = served.client.put("/api/v1/models", params={"name": "late"}, content=model(UINT8))
        assert (upload.status_code, upload.json()["code"]) == (507, "storage_full")
        assert served.label(4) == 4
        ballast.unlink()
        assert list((tmp_path / "data" / "store").glob("uploads/*")) == []
        assert served.ended(served.push(UINT8, "late")["id"])["state"] == "succeeded"
        assert served.label(5, "late") == 5
        build = served.push(target="aarch64")
        served.reaches(build["id"], "import")
        ballast = fill(tmp_path / "data")
        ended = served.client.get(f"/api/v1/builds/{build['id']}", headers={"Prefer": "wait=20"})
        ballast.unlink()
        if ended.json()["state"] not in ("succeeded", "failed"):  # a result that could not be written is computed again
            eventually(lambda: served.build(build["id"])["state"] in ("succeeded", "failed"))
        assert served.label(6) == 6
        assert served.ended(served.push(target="aarch64")["id"])["state"] == "succeeded"
        layout = OciLayout.open(tmp_path / "data" / "store")
        assert all(layout.blobs.read(digest) for digest in layout.blobs.iterate())
        assert served.stop() == 0


@pytest.mark.slow
def test_a_log_on_a_full_disk_loses_only_lines(tmp_path: Path) -> None:
    with small_disk(tmp_path / "logs", "1m"):
        path = tmp_path / "logs" / "log"
        with path.open("a") as log, built(tmp_path, log, log_format="json") as served:
            ballast = fill(tmp_path / "logs")
            server = served.data_plane()
            for _ in range(30):  # each prediction logs a line; all lines together are longer than a buffer
                served.client.post("/v2/repository/models/digits/unload")
                served.client.post("/v2/repository/models/digits/load")
            assert served.label(4) == 4
            os.kill(server, signal.SIGKILL)  # the supervisor logs this too
            eventually(lambda: predicts(served, 5))
            assert served.ended(served.push(UINT8, "late")["id"])["state"] == "succeeded"
            written = path.stat().st_size
            ballast.unlink()
            served.client.post("/v2/repository/models/late/load")
            eventually(lambda: path.stat().st_size > written)
            assert served.label(6, "late") == 6
            assert served.stop() == 0
        # A line may be truncated at the position where the disk was full. The lines after it are complete.
        after = path.read_bytes()[written:].decode(errors="replace").splitlines()
        whole = [json.loads(line) for line in after if line.startswith("{")]
        assert any("late" in line["message"] and line["level"] == "info" for line in whole), after


@pytest.mark.slow
def test_an_audit_log_on_a_full_disk_loses_only_lines(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", "64m"), (tmp_path / "log").open("w") as log, built(tmp_path, log) as served:
        ballast = fill(tmp_path / "data")
        for _ in range(50):  # more lines than fit in the last page of a file
            assert served.client.post("/v2/repository/models/digits/load").status_code == 200
        assert served.label(4) == 4
        ballast.unlink()
        assert served.client.post("/v2/repository/models/digits/unload").status_code == 200
        written = [each["action"] for each in served.client.get("/api/v1/audit?limit=99").json()["entries"]]
        assert (written[0], written[-1]) == ("unload", "push")
        lines = [
            line for line in (tmp_path / "log").read_text().splitlines() if "the audit log cannot be written" in line
        ]
        assert lines
        assert all('"action": "load"' in line for line in lines)
        assert written.count("load") + len(lines) == 50  # each line is in one of the two files
        assert served.stop() == 0


def test_a_blocked_standard_output_does_not_block_the_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            command(tmp_path, port), env=environment(grpc=False), stdout=full, stderr=full, cwd=tmp_path
        )
    with process, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False) as client:
        try:
            eventually(lambda: is_ready(client))
            process.terminate()
            assert process.wait(GIVE_UP_S) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("storage")
    with built(folder, database_timeout_s=DATABASE_TIMEOUT_S) as served:
        yield served, folder / "data"
        assert served.stop() == 0


@pytest.mark.parametrize("damage", [pytest.param("overwritten", marks=pytest.mark.slow), "truncated"])
def test_a_damaged_blob_is_rebuilt_at_its_next_load(served: tuple[Served, Path], damage: str) -> None:
    server, data_dir = served
    layout = OciLayout.open(data_dir / "store")
    artifact = Digest(server.push()["artifact"])
    library = next(layer for layer in layout.manifest(artifact).layers if layer.media_type == LIBRARY_MEDIA_TYPE)
    path = data_dir / "store" / "blobs" / library.digest.replace(":", "/")
    whole = path.read_bytes()
    path.unlink()  # creates another file with the same name, because damage on the disk does not affect the mapped file
    half = len(whole) // 2
    path.write_bytes(whole[:half] + (b"?" * (len(whole) - half) if damage == "overwritten" else b""))
    assert server.label(3) == 3  # the loaded model still answers
    server.client.post("/v2/repository/models/digits/unload")
    server.client.post("/v2/repository/models/digits/load")
    eventually(lambda: predicts(server))
    assert path.read_bytes() == whole
    assert any(entry.name.startswith(path.name) for entry in (data_dir / "store" / "quarantine").iterdir())


def test_a_locked_database_delays_the_control_plane_but_no_prediction(served: tuple[Served, Path]) -> None:
    server, data_dir = served
    with closing(sqlite3.connect(data_dir / "octet.sqlite3", isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        busy = server.client.put("/api/v1/models", params={"name": "late"}, content=model(UINT8))
        assert (busy.status_code, busy.json()["code"], busy.headers["retry-after"]) == (503, "database_busy", "1")
        times_s = []
        for _ in range(5):
            started_s = time.monotonic()
            assert server.label(7) == 7
            times_s.append(time.monotonic() - started_s)
        assert min(times_s) < DATABASE_TIMEOUT_S  # The machine may be busy with other things.
        assert server.client.get("/api/v1/models").status_code == 200  # Readers do not wait for a writer.
        database.execute("ROLLBACK")
    assert server.ended(server.push(UINT8, "late")["id"])["state"] == "succeeded"


def test_a_database_deleted_while_the_server_runs_is_restored(served: tuple[Served, Path]) -> None:
    server, data_dir = served
    artifact = server.push()["artifact"]
    for file in data_dir.glob("octet.sqlite3*"):
        file.unlink()
    eventually(lambda: (data_dir / "octet.sqlite3").exists() and predicts(server))
    # The compile worker may create the file before the server has noticed that it is missing.
    eventually(lambda: "digits" in model_names(server))
    again = server.push()
    assert (again["state"], again["artifact"]) == ("succeeded", artifact)
    assert server.ended(server.push(UINT8, "after")["id"])["state"] == "succeeded"


# libfaketime cannot be used: with it, Python's sleep, which waits for a monotonic time, fails (EINVAL).
JUMPING_CLOCK = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    FILE *file = clock == CLOCK_REALTIME ? fopen(getenv("JUMP_FILE"), "r") : NULL;
    long jump_s = 0;
    if (file) { if (fscanf(file, "%ld", &jump_s) == 1) now->tv_sec += jump_s; fclose(file); }
    return result;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
def test_a_clock_jump_loses_no_build_and_no_lease(tmp_path: Path, jump_s: int) -> None:
    source, library, clock = (tmp_path / name for name in ("clock.c", "clock.so", "jump"))
    source.write_text(JUMPING_CLOCK)
    subprocess.run([sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-o", library, source], check=True)
    jumping = {"LD_PRELOAD": str(library), "JUMP_FILE": str(clock)}
    faked = environment(lease_s=3, heartbeat_s=0.5) | jumping
    with subprocess.Popen(command(tmp_path), env=faked, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            served = Served(process, json.loads(process.stdout.readline())["url"])
            with served.client:
                build = served.push()
                served.reaches(build["id"], "import")
                worker = served.compile_worker()
                clock.write_text(f"{jump_s}")
                os.kill(worker, signal.SIGKILL)  # the lease of the worker ends a day from now, or ended long ago
                ended = served.ended(build["id"])
                assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
                finished_at = datetime.fromisoformat(ended["finished_at"])
                # the clock of the worker did jump
                assert abs((finished_at - datetime.now(UTC)).total_seconds() - jump_s) < 60
                assert served.label(3) == 3
                assert served.ended(served.push(UINT8, "later")["id"])["state"] == "succeeded"
                assert served.stop() == 0
        finally:
            process.kill()
