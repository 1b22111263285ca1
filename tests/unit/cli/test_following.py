"""Tests of following a build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from service.api.app import create_app
from tests.support.control_plane import MODEL, control_plane
from tests.support.uvicorn_thread import listening
from tests.support.waiting import WORK_TIMEOUT_S, eventually


def test_an_interrupted_push_leaves_the_build_and_shows_how_to_follow_it(tmp_path: Path) -> None:
    file = tmp_path / "digits.tflite"
    file.write_bytes(MODEL)
    with control_plane(tmp_path / "plane") as plane, listening(create_app(plane.services)) as address:
        push = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "push", str(file), "--server", f"http://{address}"],
            env={**os.environ, "OCTET_SERVER": "http://127.0.0.1:1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        eventually(lambda: bool(plane.client.get("/api/v1/builds").json()["builds"]))
        claim = plane.claim()
        plane.services.builds.log(claim, "a line of the log")
        assert push.stderr is not None
        assert "a line of the log" in push.stderr.readline()  # now the command follows the build
        push.send_signal(signal.SIGINT)
        _, written = push.communicate(timeout=WORK_TIMEOUT_S)
        assert push.returncode == 130
        followed = f"octet builds {claim.build.id[:8]} --wait --server http://{address}"
        assert followed in " ".join(written.split())
        assert plane.client.get(f"/api/v1/builds/{claim.build.id}").json()["state"] == "running"
