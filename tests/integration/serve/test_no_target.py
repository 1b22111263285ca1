"""`octet serve` on a machine that cannot run any target. It starts, reports this, and compiles for other machines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.child_process import ROOT
from tests.support.control_plane import problem
from tests.support.old_cpu import LACKS
from tests.support.serving import Served, environment, model
from tests.support.waiting import WORK_TIMEOUT_S

PROGRAM = [sys.executable, "-m", "tests.support.old_cpu", "serve", "--port", "0"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("old")
    command = [*PROGRAM, "--json", "--data-dir", str(folder)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
            assert (started["target"], ", ".join(started["missing"])) == (None, LACKS)
            served = Served(process, started["url"])
            with served.client:
                yield served
                assert served.stop() == 0
        finally:
            process.kill()


def test_no_target_is_listed_as_running_here(served: Served) -> None:
    targets = served.client.get("/api/v1/targets").json()["targets"]
    assert not any(target["runs_here"] or target["host"] for target in targets)


def kinds(served: Served) -> list[str]:
    return [worker["kind"] for worker in served.client.get("/api/v1/workers").json()["workers"]]


def test_there_is_no_inference_worker(served: Served) -> None:
    assert kinds(served) == []


def test_a_push_for_this_host_is_refused_with_what_it_lacks(served: Served) -> None:
    response = served.client.put("/api/v1/models?name=here", content=model("digits_int8.tflite"))
    error = problem(response, 422, "unknown_target")
    assert LACKS in error["detail"]
    assert "name the target" in error["hint"]
    problem(served.client.get("/api/v1/models/here"), 404, "not_found")


def test_a_push_for_another_machine_is_built_but_not_served(served: Served) -> None:
    assert served.ended(served.push(target="aarch64")["id"])["state"] == "succeeded"
    assert kinds(served) == ["compile"]
    response = served.client.post("/v2/models/digits/infer", json={"inputs": []})
    assert response.status_code == 503
    assert "built for aarch64, which does not run here" in response.json()["error"]


def test_the_text_output_reports_it_too(tmp_path: Path) -> None:
    command = [*PROGRAM, "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.lstrip().startswith("host"))
        process.terminate()
        assert process.wait(WORK_TIMEOUT_S) == 0
    assert f"can run none of the targets: for x86-64-v3, the closest, it lacks {LACKS}" in line
    assert "this machine cannot run predictions" in line
