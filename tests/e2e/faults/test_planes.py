"""Tests that if the control plane or the data plane is killed, the other one continues, and the new process restores
its state.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest

from service.db import AliasStore, Database
from tests.support.load import Load, under_load
from tests.support.serving import INT8, UINT8, Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

RAW = {"Inference-Header-Content-Length": "0"}
MODELS = {"digits": INT8, "others": INT8}


class Scene:
    """A server with two models, and a client with a persistent connection."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served, self.data_dir = served, folder / "data"
        for name, file in MODELS.items():
            assert served.ended(served.push(file, name)["id"])["state"] == "succeeded"

    def ask(self, model: str = "digits") -> httpx.Response:
        """Sends a prediction on a new connection."""
        url = f"{self.served.url}/v2/models/{model}/infer"
        return httpx.post(url, content=bytes(256), headers=RAW, timeout=WORK_TIMEOUT_S, trust_env=False, verify=False)

    def status(self, model: str = "digits") -> int:
        """Returns the status, or 0 if the connection was cut."""
        try:
            response = self.ask(model)
        except httpx.TransportError:
            return 0
        assert response.status_code != 503 or "retry-after" in response.headers, response.text
        return response.status_code

    def load(self) -> AbstractContextManager[Load]:
        """Clients that continuously send requests to both models."""

        def ask() -> int:
            return next((status for model in MODELS if (status := self.status(model)) != 200), 200)

        return under_load(ask)

    def loaded(self) -> set[str]:
        """Returns the addresses and names of the artifact files that the data plane has mapped."""
        maps = Path(f"/proc/{self.served.data_plane()}/maps").read_text().splitlines()
        return {line for line in maps if "/blobs/sha256/" in line}

    def files(self) -> set[str]:
        """Returns the names of the files in `loaded`."""
        return {line.split()[-1] for line in self.loaded()}

    def kill_control_plane(self) -> None:
        """Kills the control plane, and waits until another one responds."""
        killed = self.served.control_plane()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{killed}").exists())
        eventually(self.decides)

    def decides(self) -> bool:
        """Returns true if the control plane responds."""
        try:
            return self.served.client.get("/api/v1/models").status_code == 200
        except httpx.TransportError:
            return False

    @contextmanager
    def without_control_plane(self) -> Iterator[None]:
        """Keeps the control plane down until the block ends."""
        supervisor, control = self.served.process.pid, self.served.control_plane()
        os.kill(supervisor, signal.SIGSTOP)
        try:
            os.kill(control, signal.SIGKILL)
            eventually(lambda: Path(f"/proc/{control}/stat").read_text().split()[2] == "Z")
            yield
        finally:
            os.kill(supervisor, signal.SIGCONT)
        eventually(lambda: not Path(f"/proc/{control}").exists())
        eventually(self.decides)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("planes")
    with serving(folder) as served:
        yield Scene(served, folder)
        assert served.stop() == 0


def test_predictions_continue_while_the_control_plane_is_killed(scene: Scene) -> None:
    assert [scene.status(model) for model in MODELS] == [200, 200]
    plane, loaded = scene.served.data_plane(), scene.loaded()
    with scene.load() as load:
        scene.kill_control_plane()
        time.sleep(1)  # gives the new control plane time to find the loaded models
    assert set(load.statuses) == {200}
    assert scene.served.data_plane() == plane
    assert scene.loaded() == loaded  # nothing was reloaded
    states = scene.served.client.post("/v2/repository/index", json={}).json()
    assert {each["name"]: each["state"] for each in states} == dict.fromkeys(MODELS, "READY")


def test_without_a_control_plane_its_requests_get_a_temporary_error(scene: Scene) -> None:
    with scene.without_control_plane():
        assert [scene.status(model) for model in MODELS] == [200, 200]
        for refused in (
            scene.served.client.get("/api/v1/models"),
            scene.served.client.post("/v2/models/nobody/infer", json={"inputs": []}),
        ):
            assert (refused.status_code, refused.json()["code"]) == (503, "restarting")
            assert "the server's control plane is starting" in refused.json()["detail"]
            assert int(refused.headers["retry-after"]) >= 1
        assert scene.served.client.get("/v2/health/ready").status_code == 200


def test_unneeded_models_are_unloaded_by_the_next_control_plane(scene: Scene) -> None:
    assert scene.served.ended(scene.served.push(UINT8, "digits")["id"])["state"] == "succeeded"
    eventually(lambda: scene.ask().json()["model_version"] == "2")
    assert scene.status("others") == 200
    files = scene.files()
    with scene.without_control_plane():
        database = Database(f"sqlite:///{scene.data_dir / 'octet.sqlite3'}")
        AliasStore(database).promote("digits", "stable", 1, 100)
        database.close()
        assert scene.ask().json()["model_version"] == "2"
    eventually(lambda: scene.ask().json()["model_version"] == "1")
    eventually(lambda: scene.files() < files)


def test_a_killed_data_plane_gets_all_orders_again(scene: Scene) -> None:
    control, killed = scene.served.control_plane(), scene.served.data_plane()
    with scene.load() as load:
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: all(scene.status(model) == 200 for model in MODELS))
    load.check()
    assert scene.served.control_plane() == control
    assert scene.served.data_plane() != killed
    assert scene.served.client.get("/v2/health/ready").status_code == 200


def test_both_planes_are_killed(scene: Scene) -> None:
    with scene.load() as load:
        for killed in (scene.served.control_plane(), scene.served.data_plane()):
            os.kill(killed, signal.SIGKILL)
        eventually(lambda: all(scene.status(model) == 200 for model in MODELS))
    load.check()
    assert scene.decides()


def test_a_canary_keeps_its_share_while_the_control_plane_is_killed(scene: Scene) -> None:
    promote = {"version": 2, "percent": 50}
    assert scene.served.client.post("/api/v1/models/digits/promote", json=promote).status_code == 200
    answered: list[str] = []

    def ask() -> int:
        response = scene.ask()
        answered.append(response.json().get("model_version", response.text))
        return response.status_code

    with under_load(ask) as load:
        eventually(lambda: set(answered) == {"1", "2"})
        scene.kill_control_plane()
        time.sleep(1)
        answered.clear()
        eventually(lambda: set(answered) == {"1", "2"})
    assert set(load.statuses) == {200}
