"""The supervisor ends model calls that do not end, and processes that hang."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.endless import FOREVER, request, status, write_endless
from tests.support.serving import Served, serving
from tests.support.systemd import notified
from tests.support.waiting import WORK_TIMEOUT_S, eventually

HANGS = 3  # an artifact is quarantined after it has hung this often


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hangs")


@pytest.fixture(scope="module")
def log(folder: Path) -> Path:
    return folder / "log"


@pytest.fixture(
    scope="module",
    params=["false", pytest.param("true", marks=pytest.mark.slow)],
    ids=["one plane", "a plane for each tenant"],
)
def served(request: pytest.FixtureRequest, folder: Path, log: Path) -> Iterator[Served]:
    """A server with two models, `bad` and `good`. `good` never receives the input for which it would hang."""
    folder = folder / request.param
    for salt, name in enumerate(("good", "bad")):
        write_endless(folder / "models" / f"{name}.octet", salt)
    settings = {"model_files": json.dumps([str(folder / "models")]), "call_limit_s": 0.2, "watchdog_s": 2.5}
    settings |= {"plane_per_tenant": request.param, "max_crashes": HANGS}
    with log.open("w") as file, notified() as messages, serving(folder, file, **settings) as each:
        for name in ("good", "bad"):
            eventually(lambda name=name: status(each.client, name) == httpx.codes.OK, WORK_TIMEOUT_S)  # type: ignore[misc]
        eventually(lambda: b"READY=1" in messages)
        assert b"STOPPING=1" not in messages
        yield each
        assert each.stop() == 0
        eventually(lambda: b"STOPPING=1" in messages)
        assert set(messages) == {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}


def hang(served: Served, times: int) -> list[httpx.Response | httpx.TransportError]:
    """Sends concurrent calls that do not end, and returns the responses."""
    found: list[httpx.Response | httpx.TransportError] = []

    def call() -> None:
        try:
            found.append(httpx.post(f"{served.url}/v2/models/bad/infer", json=request(FOREVER), timeout=WORK_TIMEOUT_S))
        except httpx.TransportError as error:
            found.append(error)

    threads = [threading.Thread(target=call) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def answers(served: Served, name: str) -> bool:
    return status(served.client, name) == httpx.codes.OK


@pytest.mark.parametrize("which", ["data_plane", "control_plane", "compile_worker"])
def test_a_stopped_process_is_killed_and_replaced(served: Served, log: Path, which: str) -> None:
    if which == "compile_worker":
        served.push()
    find = getattr(served, which)
    before, log_text = find(), log.read_text()
    os.kill(before, signal.SIGSTOP)
    eventually(lambda: not Path(f"/proc/{before}").exists(), WORK_TIMEOUT_S)
    eventually(lambda: answers(served, "good"), WORK_TIMEOUT_S)
    eventually(lambda: served.client.get("/api/v1/models").is_success, WORK_TIMEOUT_S)
    if which != "compile_worker":  # the compile worker ends when there is nothing to build
        assert find() != before
    log_text = log.read_text().removeprefix(log_text)
    name = which.replace("_", " ")
    assert re.search(
        rf"the {name}( of the operator)? hangs and is being killed: it sent no heartbeat for 2\.", log_text
    )
    assert "stopped by a signal" in log_text
    assert "quarantine" not in log_text


def test_hung_calls_are_ended_and_counted_until_the_model_is_quarantined(served: Served, log: Path) -> None:
    """After that, the server does not use the model."""
    for number in range(1, HANGS + 1):
        for answer in hang(served, 2):
            assert isinstance(answer, httpx.Response), answer
            assert (answer.status_code, answer.json()["code"]) == (503, "restarting")
            assert "hangs" in answer.json()["detail"]
        eventually(lambda: answers(served, "good"), WORK_TIMEOUT_S)
        if number < HANGS:
            eventually(lambda: answers(served, "bad"), WORK_TIMEOUT_S)
    refusals: list[dict[str, Any]] = []

    def is_quarantined() -> bool:
        refusals.append(served.client.post("/v2/models/bad/infer", json=request(0)).json())
        return refusals[-1].get("code") == "quarantined"

    eventually(is_quarantined)
    assert "a call of bad 1 did not end in " in refusals[-1]["detail"]
    assert answers(served, "good")
    log_text = log.read_text()
    assert "hangs and is being killed: a call of bad 1 did not end in " in log_text
    assert "crash 1 of 3 before it is put in quarantine" in log_text
    assert "it is in quarantine now" in log_text
