"""Pictures are decoded by a process of their own. If it dies, hangs or is flooded, other requests do not notice."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.pictures import large_png
from tests.support.serving import Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

LARGE = large_png()
RAW = {"Inference-Header-Content-Length": "0"}
INFER = "/v2/models/digits/infer"
TENSOR: dict[str, Any] = {"content": bytes(16 * 16), "headers": {**RAW, "Content-Type": "application/octet-stream"}}
WATCHDOG_S = 6.0


@pytest.fixture(
    scope="module",
    params=["false", pytest.param("true", marks=pytest.mark.slow)],
    ids=["one plane", "a plane for each tenant"],
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {"watchdog_s": WATCHDOG_S, "plane_per_tenant": request.param}
    with serving(tmp_path_factory.mktemp("preprocess"), **settings) as served:
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        assert served.label(2) == 2
        yield served
        assert served.stop() == 0


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def send_large(served: Served, executor: ThreadPoolExecutor) -> Future[httpx.Response]:
    """Sends a picture that takes a second to decode, and returns when its decoding has begun."""
    before = _ticks(served.preprocessor())
    response = executor.submit(
        httpx.post, f"{served.url}{INFER}", content=LARGE, headers=RAW, timeout=WORK_TIMEOUT_S, trust_env=False
    )
    eventually(lambda: _ticks(served.preprocessor()) > before)
    return response


def _ticks(pid: int) -> int:
    """Returns the processor time of a process, in units of the kernel."""
    try:
        members = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(members[11]) + int(members[12])


def _resident_mb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) // 256


def infer_tensor(served: Served) -> float:
    """Returns how long a prediction with a tensor takes, in seconds."""
    began_s = time.monotonic()
    response = served.client.post(INFER, **TENSOR)
    assert response.status_code == 200, response.text
    return time.monotonic() - began_s


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_a_request_is_repeated_if_the_process_dies(served: Served, executor: ThreadPoolExecutor) -> None:
    response = send_large(served, executor)
    before = served.preprocessor()
    kill(before)
    assert response.result().status_code == 200
    assert served.preprocessor() != before


def test_a_request_is_repeated_only_once(served: Served, executor: ThreadPoolExecutor) -> None:
    response = send_large(served, executor)
    first = served.preprocessor()
    kill(first)
    eventually(lambda: served.preprocessor() != first)
    second = served.preprocessor()
    eventually(lambda: _ticks(second) > 3)  # it decodes the picture
    kill(second)
    refused = response.result()
    assert (refused.status_code, refused.json()["code"]) == (503, "restarting")
    assert "ended while it worked on this request" in refused.json()["detail"]
    assert served.label(3) == 3


def test_a_process_that_hangs_is_killed_and_replaced(served: Served, executor: ThreadPoolExecutor) -> None:
    before = served.preprocessor()
    os.kill(before, signal.SIGSTOP)
    label = executor.submit(served.label, 4)
    while not label.done():
        assert infer_tensor(served) < WATCHDOG_S / 2
    assert label.result() == 4
    eventually(lambda: not Path(f"/proc/{before}").exists())


def test_a_deadline_is_kept_while_the_process_hangs(served: Served) -> None:
    os.kill(served.preprocessor(), signal.SIGSTOP)
    began_s = time.monotonic()
    response = served.client.post(INFER, content=LARGE, headers={**RAW, "octet-timeout-ms": "200"})
    assert response.status_code == 504
    assert time.monotonic() - began_s < WATCHDOG_S / 2
    assert served.label(5) == 5


def test_abandoned_pictures_delay_no_other_client(served: Served) -> None:
    """Sends 40 requests, each with a picture of 33 megapixels, and leaves. Another client's picture, and tensors, are
    answered in the meantime.
    """
    assert served.label(6) == 6
    url, stop, slowest_s = urlsplit(served.url), threading.Event(), [0.0]

    def abandon() -> None:
        head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(LARGE)}\r\n"
        text = f"{head}Inference-Header-Content-Length: 0\r\n\r\n".encode() + LARGE
        with socket.create_connection((url.hostname, url.port), source_address=("127.0.0.9", 0)) as connection:
            connection.sendall(text)
            stop.wait(0.3)

    def watch_tensors() -> None:
        with httpx.Client(base_url=served.url, trust_env=False, timeout=WORK_TIMEOUT_S) as client:
            while not stop.is_set():
                began_s = time.monotonic()
                assert client.post(INFER, **TENSOR).status_code == 200
                slowest_s[0] = max(slowest_s[0], time.monotonic() - began_s)

    threads = [threading.Thread(target=each) for each in (*[abandon] * 40, watch_tensors)]
    before = {name: _resident_mb(getattr(served, name)()) for name in ("data_plane", "control_plane")}
    for thread in threads:
        thread.start()
    answers: list[float] = []
    deadline_s = time.monotonic() + 3
    while time.monotonic() < deadline_s:
        began_s = time.monotonic()
        assert served.label(7) == 7
        answers.append(time.monotonic() - began_s)
    peak_mb = int(_members(served.preprocessor())["VmHWM"].split()[0]) // 1024
    stop.set()
    for thread in threads:
        thread.join()
    assert max(answers) < 1 + WORK_TIMEOUT_S / 60
    assert peak_mb < 700
    assert slowest_s[0] < 1
    after = {name: _resident_mb(getattr(served, name)()) for name in ("data_plane", "control_plane")}
    assert all(after[name] - before[name] < 100 for name in before), (before, after)


def _members(pid: int) -> dict[str, Any]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_process_is_locked_in(served: Served) -> None:
    status = _members(served.preprocessor())
    assert (status["Seccomp"], status["NoNewPrivs"], status["CapEff"]) == ("2", "1", "0000000000000000")
