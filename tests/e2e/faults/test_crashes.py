"""Tests of a model whose native code crashes: other models continue to serve, and the model is quarantined in the
end.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from service.core.digest import Digest
from tests.support.compiled import EXAMPLES
from tests.support.load import Load, under_load
from tests.support.poison import poison
from tests.support.serving import INT8, UINT8, Served, environment, serving
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S, eventually

PICTURE = (EXAMPLES / "digits" / "3.png").read_bytes()


class Scene:
    """A server with a good model, and a model that crashes the server."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served, self.data_dir = served, folder / "data"
        for name, file in (("digits", INT8), ("poison", UINT8)):
            assert served.ended(served.push(file, name)["id"])["state"] == "succeeded"
        assert served.label(3) == 3
        self.artifact: Digest = poison(self.data_dir, "poison")

    def predict(self, model: str) -> httpx.Response:
        """Sends a prediction on a new connection, so that a cut connection belongs to this request."""
        return httpx.post(
            f"{self.served.url}/v2/models/{model}/infer",
            content=PICTURE,
            headers={"Content-Type": "image/png"},
            timeout=WORK_TIMEOUT_S,
            trust_env=False,
            verify=False,
        )

    def predict_safely(self, model: str) -> int:
        """Returns the status, or 0 if the connection was cut."""
        try:
            return self.predict(model).status_code
        except httpx.TransportError:
            return 0

    def load(self) -> AbstractContextManager[Load]:
        """Clients that continuously send requests to the good model."""
        return under_load(lambda: self.predict_safely("digits"))

    def crash(self) -> None:
        """Sends a request to the bad model, and waits until the good one responds again."""
        with pytest.raises(httpx.TransportError):
            self.predict("poison")
        while (response := self.predict("digits")).status_code != 200:
            assert response.status_code == 503
            assert response.headers["retry-after"] == "1"
            assert response.json()["code"] == "restarting"
            time.sleep(0.02)


def is_cut(connection: socket.socket) -> bool:
    """Returns true if the connection ended without a response."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("crashes")
    with serving(folder) as served:
        yield Scene(served, folder)
        assert served.stop() == 0


def test_the_other_model_recovers_after_each_crash_and_the_third_quarantines(scene: Scene) -> None:
    url = urlsplit(scene.served.url)
    with socket.create_connection((url.hostname, url.port), timeout=GIVE_UP_S) as in_flight:
        in_flight.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{")
        scene.crash()
        assert is_cut(in_flight)
    for _ in range(2):
        scene.crash()
    refused = scene.predict("poison")
    assert (refused.status_code, refused.json()["code"]) == (503, "quarantined")
    assert scene.artifact in refused.json()["detail"]
    assert "crashed 3 times" in refused.json()["detail"]
    assert "signal 11: Segmentation fault" in refused.json()["detail"]
    assert scene.predict("digits").status_code == 200


def test_the_record_contains_the_artifact(scene: Scene) -> None:
    (record,) = json.loads((scene.data_dir / "crashes.json").read_text()).items()
    assert (record[0], len(record[1]["crashes"]), record[1]["is_quarantined"]) == (scene.artifact, 3, True)


def octet(scene: Scene, *arguments: str) -> str:
    command = [sys.executable, "-m", "service.cli", *arguments, "--server", scene.served.url]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=WORK_TIMEOUT_S, check=True
    ).stdout


def test_commands_show_the_quarantine_and_end_it(scene: Scene) -> None:
    for listed in (octet(scene, "models"), octet(scene, "quarantine")):
        assert "in quarantine: poison version 1 for" in listed
        assert f"octet quarantine {scene.artifact} --forgive" in listed
    assert "poison version 1" in octet(scene, "quarantine", scene.artifact, "--forgive")
    assert "No artifact is in quarantine" in octet(scene, "quarantine")
    assert "quarantine" not in octet(scene, "models")
    scene.crash()  # the artifact was tried again


def test_an_explicit_load_tries_it_again(scene: Scene) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.post(
            f"{scene.served.url}/v2/repository/models/poison/load",
            timeout=WORK_TIMEOUT_S,
            trust_env=False,
            verify=False,
        )
    while scene.predict("digits").status_code != 200:
        time.sleep(0.02)
    (record,) = json.loads((scene.data_dir / "crashes.json").read_text()).values()
    assert (len(record["crashes"]), record["is_quarantined"]) == (1, False)


def test_killing_the_server_from_outside_blames_no_artifact(scene: Scene) -> None:
    record = (scene.data_dir / "crashes.json").read_bytes()
    with scene.load() as load:
        os.kill(scene.served.data_plane(), signal.SIGKILL)
        eventually(lambda: scene.predict_safely("digits") == 200)
    load.check()
    assert (scene.data_dir / "crashes.json").read_bytes() == record


def test_under_load_only_requests_in_flight_see_more_than_a_503(scene: Scene) -> None:
    with scene.load() as load:
        scene.crash()
    load.check()


def test_a_killed_server_is_back_without_a_restart_of_the_rest(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        control = served.control_plane()
        os.kill(served.data_plane(), signal.SIGKILL)
        eventually(lambda: is_ready(served))
        assert served.control_plane() == control


def is_ready(served: Served) -> bool:
    try:
        ready = httpx.get(f"{served.url}/v2/health/ready", timeout=WORK_TIMEOUT_S, trust_env=False, verify=False)
    except httpx.TransportError:
        return False
    return ready.status_code == 200
