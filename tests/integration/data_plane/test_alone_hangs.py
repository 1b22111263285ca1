"""A data plane without a supervisor. If a call does not end, the data plane ends itself and reports the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx

from tests.support.endless import FOREVER, request, write_endless
from tests.support.systemd import notified
from tests.support.waiting import WORK_TIMEOUT_S, eventually

GIVEN_UP = 4  # exit status


def test_a_hung_call_gets_a_response_and_ends_the_process(tmp_path: Path) -> None:
    write_endless(tmp_path / "models" / "bad.octet")
    program = [sys.executable, "-m", "service.cli", "worker", "serve", f"bad={tmp_path / 'models' / 'bad.octet'}"]
    with notified() as messages:
        environment = os.environ | {"OCTET_CALL_LIMIT_S": "0.2"}
        process = subprocess.Popen(
            [*program, "--port=0", "--no-grpc", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with httpx.Client(base_url=url, timeout=WORK_TIMEOUT_S) as client:
                assert client.post("/v2/models/bad/infer", json=request(0)).status_code == httpx.codes.OK
                eventually(lambda: {b"READY=1", b"WATCHDOG=1"} <= set(messages))
                answer = client.post("/v2/models/bad/infer", json=request(FOREVER))
            assert (answer.status_code, answer.json()["code"]) == (503, "restarting")
            assert "hangs" in answer.json()["detail"]
            _, log = process.communicate(timeout=WORK_TIMEOUT_S)
            assert process.returncode == GIVEN_UP
            assert "a call of bad 1 hangs: the process ends" in log
        finally:
            process.kill()
            process.communicate()


def test_systemd_is_notified_of_the_stop(tmp_path: Path) -> None:
    write_endless(tmp_path / "models" / "good.octet")
    program = [sys.executable, "-m", "service.cli", "worker", "serve", str(tmp_path / "models" / "good.octet")]
    with notified() as messages:
        process = subprocess.Popen(
            [*program, "--port=0", "--no-grpc", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            eventually(lambda: b"WATCHDOG=1" in messages, WORK_TIMEOUT_S)
            assert b"STOPPING=1" not in messages
            process.terminate()
            assert process.wait(WORK_TIMEOUT_S) == 0
            eventually(lambda: b"STOPPING=1" in messages)
            assert set(messages) == {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}
        finally:
            process.kill()
            process.communicate()
