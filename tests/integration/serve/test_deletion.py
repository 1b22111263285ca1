"""Models are deleted from a server while it serves them, and from a server that is killed during the deletion."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.integration.serve.conftest import LEASE
from tests.support.compiled import EXAMPLES
from tests.support.serving import UINT8, Served, environment, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

PNG = {"Content-Type": "image/png"}
PICTURE = (EXAMPLES / "digits" / "3.png").read_bytes()


def rm(served: Served, model: str, *options: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "service.cli", "rm", model, "--server", served.url, *options]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=WORK_TIMEOUT_S)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


@contextmanager
def asking(served: Served, model: str) -> Iterator[Counter[int]]:
    """Sends predictions continuously, and yields the number of responses with each status."""
    answers, stop = Counter[int](), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=served.url, timeout=WORK_TIMEOUT_S, trust_env=False) as client:
            while not stop.is_set():
                response = client.post(
                    f"/v2/models/{model}/infer", content=PICTURE, headers={"Content-Type": "image/png"}
                )
                answers[response.status_code] += 1

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_requests_in_progress_are_answered_and_later_ones_are_not_found(served: Served) -> None:
    assert served.push(name="doomed")["state"] == "succeeded"
    assert served.label(3, "doomed") == 3
    with asking(served, "doomed") as answers:
        eventually(lambda: answers[200] >= 50)
        assert rm(served, "doomed") == "deleted doomed: version 1\n"
        eventually(lambda: answers[404] >= 20)
    assert answers.keys() == {200, 404}
    assert served.label(3) == 3  # the model with the other name shares the build


def test_after_one_of_two_versions_is_deleted_the_other_answers(served: Served) -> None:
    for file in ("digits_int8.tflite", UINT8):
        assert served.ended(served.push(file, name="two")["id"])["state"] == "succeeded"
    assert served.label(3, "two") == 3
    with asking(served, "two") as answers:
        eventually(lambda: answers[200] >= 20)
        rm(served, "two:2")
        before = answers[200]
        eventually(lambda: answers[200] >= before + 50)
    assert answers.keys() == {200}
    metadata = served.client.get("/v2/models/two").json()
    assert (metadata["versions"], metadata["inputs"][0]["datatype"]) == (["1"], "INT8")


def test_the_version_of_stable_is_deleted_only_by_force(served: Served) -> None:
    assert served.push(name="kept")["state"] == "succeeded"
    assert served.client.post("/api/v1/models/kept/promote", json={"version": 1}).status_code == 200
    assert "alias 'stable' of model 'kept' points at version 1" in rm(served, "kept", status=1)
    assert served.label(2, "kept") == 2
    assert "its aliases stable" in rm(served, "kept", "--force")
    assert served.client.get("/v2/models/kept").status_code == 404


@pytest.mark.slow
def test_a_kill_during_the_deletion_leaves_all_of_the_model_or_nothing(tmp_path: Path) -> None:
    """The server is killed 0 to 40 ms after the request to delete."""
    outcomes = Counter[bool]()
    for wait_ms in range(0, 42, 6):
        with serving(tmp_path, **LEASE) as served:
            assert served.ended(served.push()["id"])["state"] == "succeeded"
            thread = threading.Thread(target=_delete, args=(served.url,))
            thread.start()
            thread.join(wait_ms / 1000)
            served.kill()
            thread.join()
        with serving(tmp_path, **LEASE) as served:
            listed = [model["name"] for model in served.client.get("/api/v1/models").json()["models"]]
            builds = served.client.get("/api/v1/builds").json()["builds"]
            assert bool(builds) == ("digits" in listed)
            if listed:
                assert served.label(6) == 6
            outcomes["digits" in listed] += 1
            assert served.stop() == 0
    assert sum(outcomes.values()) == 7


def _delete(url: str) -> None:
    with suppress(httpx.TransportError):  # the server was killed
        httpx.delete(f"{url}/api/v1/models/digits", timeout=WORK_TIMEOUT_S, trust_env=False)
