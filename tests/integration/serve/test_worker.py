"""`octet compile-worker` as a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.core.cluster.worker import WorkerKind
from service.core.settings import Settings
from service.db import Database, WorkerStore
from tests.support.serving import children_of, environment, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually


@contextmanager
def working(data_dir: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "service.cli", "compile-worker", "--data-dir", str(data_dir), *options]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_builds_are_nicer_than_predictions_and_share_their_session(tmp_path: Path) -> None:
    """In another session, their niceness would have no effect: see core.scheduling."""
    with serving(tmp_path, build_nice=7) as served:
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        server, worker = served.data_plane(), served.compile_worker()
        every = [worker, *children_of(worker)]
        assert len(every) > 1, "the compile worker has no zygote"
        assert [os.getpriority(os.PRIO_PROCESS, each) for each in every] == [7] * len(every)
        assert os.getpriority(os.PRIO_PROCESS, server) == os.getpriority(os.PRIO_PROCESS, 0)
        assert {os.getsid(each) for each in every} == {os.getsid(server)}
        assert served.stop() == 0


def test_with_json_the_only_output_is_its_id(tmp_path: Path) -> None:
    with working(tmp_path, "--json") as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        assert (document["pid"], document["data_dir"]) == (process.pid, str(tmp_path))
        database = Database(Settings(data_dir=tmp_path).url_of_database)
        workers = WorkerStore(database)
        eventually(lambda: [each.id for each in workers.list(60)] == [document["worker"]])
        assert workers.list(60)[0].kind is WorkerKind.COMPILE
        database.close()
        process.terminate()
        assert process.communicate(timeout=WORK_TIMEOUT_S)[0] == ""
        assert process.returncode == 0


def test_without_json_the_output_is_text(tmp_path: Path) -> None:
    with working(tmp_path) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.terminate()
        assert process.wait(WORK_TIMEOUT_S) == 0
    assert lines[0].startswith("compile-")
    assert str(tmp_path) in lines[1]
    assert "sandbox" in lines[2]


def test_with_json_an_error_is_json_too(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "oci-layout").write_text('{"imageLayoutVersion": "9"}')
    with working(tmp_path, "--json") as process:
        document, _ = process.communicate(timeout=WORK_TIMEOUT_S)
    assert process.returncode == 1
    assert json.loads(document)["error"]["code"] == "invalid_input"


@pytest.mark.slow
def test_octet_serve_runs_one_while_there_is_something_to_build(tmp_path: Path) -> None:
    with serving(tmp_path, compiler_idle_s=1) as served:
        before = children_of(served.process.pid)
        build = served.push()
        worker = served.compile_worker()
        assert worker not in before
        assert served.ended(build["id"])["state"] == "succeeded"
        eventually(lambda: sorted(children_of(served.process.pid)) == sorted(before), WORK_TIMEOUT_S)
        assert served.ended(served.push(target="aarch64")["id"])["state"] == "succeeded"
        assert served.compile_worker() != worker
