"""Tests of one data plane per tenant: a model of one tenant cannot affect another tenant."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.access.keys import KeyFile
from service.core.access.key import Limits, Scope, new_key
from tests.support.load import under_load
from tests.support.poison import poison
from tests.support.serving import INT8, UINT8, Served, children_of, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

RAW = {"Inference-Header-Content-Length": "0"}
TENANTS = ("", "acme", "beta")
_REST_S = 32.0  # after this time, the connections to tenants' data planes have been closed and replaced


class Scene:
    """A server with an operator and two tenants, each with a model `digits`."""

    def __init__(self, served: Served, keys: Mapping[str, str], stack: ExitStack) -> None:
        self.served, self.keys = served, keys
        self.clients = {
            tenant: stack.enter_context(
                httpx.Client(
                    base_url=served.url, headers=_key_header(key), timeout=WORK_TIMEOUT_S, trust_env=False, verify=False
                )
            )
            for tenant, key in keys.items()
        }

    def push(self, tenant: str, file: str, name: str = "digits") -> None:
        served = Served(self.served.process, self.served.url)
        served.client = self.clients[tenant]
        build = served.ended(served.push(file, name)["id"])
        assert build["state"] == "succeeded", build

    def status(self, tenant: str, name: str = "digits") -> int:
        """Sends a prediction on a new connection, and returns its status; 0 if the connection was cut."""
        url = f"{self.served.url}/v2/models/{name}/infer"
        headers = {**RAW, **_key_header(self.keys[tenant])}
        try:
            answer = httpx.post(
                url, content=bytes(256), headers=headers, timeout=WORK_TIMEOUT_S, trust_env=False, verify=False
            )
            return answer.status_code
        except httpx.TransportError:
            return 0

    def planes(self) -> dict[str, int]:
        """Returns the data plane processes, by the folder that they may read."""
        found = {}
        for pid in children_of(self.served.process.pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if words[0].endswith("octet-plane"):
                found[Path(words[words.index("--reads") + 1]).name] = pid
        return found


def _key_header(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("tenants")
    keys = KeyFile(folder / "keys.json")
    made = {}
    for tenant in TENANTS:
        key, made[tenant] = new_key("k", [Scope.ADMIN], Limits(), datetime.now(UTC), tenant)
        keys.add(key)
    settings: dict[str, Any] = {"plane_per_tenant": True, "keys_file": folder / "keys.json", "auth": "on"}
    with serving(folder, **settings) as served, ExitStack() as stack:
        scene = Scene(served, made, stack)
        for tenant in TENANTS:
            scene.push(tenant, INT8)
            assert scene.status(tenant) == 200
        yield scene


def mapped(pid: int) -> set[str]:
    """Returns the artifact files that a process has mapped, by the folder they were opened in."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line.split()[5]).parent.name for line in lines if "/planes/" in line or "/blobs/" in line}


def test_a_process_maps_only_artifacts_of_its_tenant(scene: Scene) -> None:
    planes = scene.planes()
    assert set(planes) == {"~front", "~operator", "acme", "beta"}
    assert mapped(planes["~front"]) == set()
    for name in ("~operator", "acme", "beta"):
        assert mapped(planes[name]) == {name}


def test_all_requests_about_a_model_are_answered(scene: Scene) -> None:
    client = scene.clients["acme"]
    assert client.get("/v2/health/ready").status_code == 200
    assert client.get("/v2/models/digits").json()["name"] == "digits"
    assert client.get("/v2/models/digits/ready").json()["ready"]
    (counts,) = client.get("/v2/models/digits/stats").json()["model_stats"]
    assert counts["inference_count"] >= 1
    assert client.post("/v2/repository/models/digits/unload").status_code == 200
    assert (scene.status("acme"), scene.status("beta")) == (503, 200)
    assert client.post("/v2/repository/models/digits/load").status_code == 200
    assert scene.status("acme") == 200


def test_metrics_are_labeled_by_tenant(scene: Scene) -> None:
    lines = scene.clients[""].get("/metrics").text.splitlines()
    for tenant in TENANTS:
        model = f"{tenant}~digits" if tenant else "digits"
        assert any(line.startswith("octet_requests_total") and f'model="{model}"' in line for line in lines)
        assert any(line.startswith(f'octet_tenant_plane_resident_bytes{{tenant="{tenant}"}}') for line in lines)


def test_a_crash_affects_one_tenant_only(scene: Scene) -> None:
    scene.push("acme", UINT8, "poison")
    artifact = poison(_data_dir(scene), "acme~poison")
    before = scene.planes()
    with under_load(lambda: scene.status("beta")) as load:
        assert scene.status("acme", "poison") in (0, 503)
        eventually(lambda: scene.status("acme") == 200, WORK_TIMEOUT_S)
    assert set(load.statuses) == {200}
    after = scene.planes()
    assert {name for name in before if before[name] != after[name]} == {"acme"}
    quarantine = _data_dir(scene) / "crashes.json"
    assert artifact in quarantine.read_text()


def test_a_stopped_process_affects_one_tenant_only(scene: Scene) -> None:
    pid = scene.planes()["acme"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert scene.status("beta") == 200
        assert scene.clients[""].get("/metrics").status_code == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    assert scene.status("acme") == 200


@pytest.mark.slow
def test_idle_connections_are_replaced_without_the_control_plane(scene: Scene) -> None:
    before = scene.planes()
    time.sleep(_REST_S)
    os.kill(scene.served.control_plane(), signal.SIGKILL)
    assert [scene.status(tenant) for tenant in TENANTS] == [200] * 3
    eventually(lambda: scene.clients[""].get("/api/v1/models").status_code == 200, WORK_TIMEOUT_S)
    assert [scene.status(tenant) for tenant in TENANTS] == [200] * 3
    assert scene.planes() == before


def _data_dir(scene: Scene) -> Path:
    words = Path(f"/proc/{scene.served.process.pid}/cmdline").read_bytes().decode().split("\0")
    return Path(words[words.index("--data-dir") + 1])
