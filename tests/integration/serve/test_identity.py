"""`octet serve` for other machines, with keys and TLS: from creating the first key to a log without secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc

from scripts.certificates import make_certificate
from service.api.access import stores_of
from service.core.settings import Settings
from tests.support.compiled import EXAMPLES
from tests.support.serving import INT8, Served, environment, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

PICTURE = EXAMPLES / "digits" / "7.png"


class Scene:
    """A server that requires keys, and clients of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.cert, self.private = make_certificate(folder)
        self.admin = self.octet("keys", "create", "me", "--scope", "admin")["key"]
        self.keys = [self.admin]

    def octet(self, *arguments: str, **variables: str) -> Any:
        """Runs a command and returns its JSON output."""
        given = {"DATA_DIR": str(self.folder / "data"), **variables}
        trusted = {"SSL_CERT_FILE": str(self.cert)}
        done = subprocess.run(
            [sys.executable, "-m", "service.cli", *arguments, "--json"],
            env=environment(**given) | trusted,
            capture_output=True,
            text=True,
            timeout=WORK_TIMEOUT_S,
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def started(self) -> Iterator[Served]:
        with (
            self.log.open("ab") as log,
            serving(self.folder, log.fileno(), host="0.0.0.0", tls_cert=self.cert, tls_key=self.private) as served,
        ):
            yield served

    def new_key(self, served: Served, *scopes: str, **limits: int) -> str:
        request = {"name": "a", "scopes": scopes or ["predict"], **limits}
        key: str = served.client.post("/api/v1/keys", json=request).json()["key"]
        self.keys.append(key)
        return key


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("identity"))


@pytest.fixture(scope="module")
def served(scene: Scene) -> Iterator[Served]:
    for served in scene.started():
        served.client.headers.update(bearer(scene.admin))
        assert served.ended(served.push(INT8)["id"])["state"] == "succeeded"
        yield served
        assert served.stop() == 0
        _check_log(scene)


def _check_log(scene: Scene) -> None:
    """Checks that the output of the server and its compile worker, and their files, contain no secret."""
    written = [scene.log, *(scene.folder / "data").glob("*.json*")]
    assert {"log", "keys.json", "audit.jsonl"} <= {path.name for path in written}
    text = b"".join(path.read_bytes() for path in written)
    assert b"wrong" not in text
    for key in scene.keys:
        assert key.split("_")[2].encode() not in text


def test_a_key_is_required_over_https(scene: Scene, served: Served) -> None:
    assert served.url.startswith("https://127.0.0.1:")
    path = "/v2/models/digits/infer"
    body, kind = PICTURE.read_bytes(), {"Content-Type": "image/png"}
    key = scene.new_key(served)
    answers = {
        name: served.client.post(path, content=body, headers={**kind, "Authorization": shown}).status_code
        for name, shown in {"none": "", "wrong": f"Bearer {key[:-5]}wrong", "right": f"Bearer {key}"}.items()
    }
    assert answers == {"none": 401, "wrong": 401, "right": 200}
    assert served.client.get("/api/v1/models", headers=bearer(key)).status_code == 403
    assert served.client.get("/v2/health/ready", headers={"Authorization": ""}).status_code == 200


def test_the_health_command_uses_the_same_settings(scene: Scene, served: Served, tmp_path: Path) -> None:
    settings = {"HOST": "0.0.0.0", "PORT": served.url.rpartition(":")[2]}
    # this certificate is for another name, so clients do not trust it; the command accepts it
    other, private = make_certificate(tmp_path)
    encrypted = {**settings, "TLS_CERT": str(other), "TLS_KEY": str(private)}
    for flags in ((), ("--ready",)):
        assert scene.octet("health", *flags, **encrypted)["said"] == "200"
    assert not scene.octet("health", **settings)["healthy"]  # the server does not respond in plain text


def test_commands_send_their_key(scene: Scene, served: Served) -> None:
    key = scene.new_key(served, "push", "predict")
    ask = ("predict", "digits", str(PICTURE))
    assert scene.octet(*ask, SERVER=served.url)["error"]["code"] == "unauthorized"
    assert "error" not in scene.octet(*ask, "--key", key, "--server", served.url)
    assert scene.octet("promote", "digits:1", SERVER=served.url, KEY=key)["version"] == 1
    entries = scene.octet("audit", SERVER=served.url, KEY=scene.admin)
    assert (entries[0]["action"], entries[0]["model"], entries[0]["who"]) == ("promote", "digits", key.split("_")[1])


def test_a_third_party_client_sends_its_key_over_grpc(scene: Scene, served: Served) -> None:
    assert served.grpc is not None
    key = scene.new_key(served)
    with tritonclient.grpc.InferenceServerClient(served.grpc, ssl=True, root_certificates=str(scene.cert)) as client:
        spec = client.get_model_metadata("digits", headers={"authorization": f"Bearer {key}"}).inputs[0]
        tensor = tritonclient.grpc.InferInput(spec.name, list(spec.shape), spec.datatype)
        tensor.set_data_from_numpy(np.zeros(list(spec.shape), spec.datatype.lower()))
        with pytest.raises(tritonclient.grpc.InferenceServerException, match="UNAUTHENTICATED"):
            client.infer("digits", [tensor])
        assert client.infer("digits", [tensor], headers={"authorization": f"Bearer {key}"}).get_response().outputs


def test_the_rate_of_a_key_is_limited(scene: Scene, served: Served) -> None:
    key = scene.new_key(served, requests_per_day=2)
    answers = [served.client.get("/v2", headers=bearer(key)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 24 * 3600


def test_changes_of_keys_in_the_folder_take_effect_soon(scene: Scene, served: Served) -> None:
    key = scene.new_key(served)
    assert served.client.get("/v2", headers=bearer(key)).status_code == 200
    stores_of(Settings(data_dir=scene.folder / "data")).ring().revoke(key.split("_")[1])
    eventually(lambda: served.client.get("/v2", headers=bearer(key)).status_code == 401)


def test_keys_and_their_use_survive_a_crash_and_every_response_is_encrypted(scene: Scene, served: Served) -> None:
    key = scene.new_key(served)
    os.kill(served.data_plane(), signal.SIGKILL)
    seen = set()

    def is_back() -> bool:
        try:
            answer = served.client.get("/v2", headers=bearer(key))
        except httpx.TransportError:  # the connection belonged to the killed process
            return False
        seen.add(answer.status_code)
        return answer.status_code == 200

    eventually(is_back)
    assert seen <= {200, 503}
    assert served.client.get("/v2", headers={"Authorization": ""}).status_code == 401


def test_grpc_is_encrypted(served: Served) -> None:
    with grpc.insecure_channel(str(served.grpc)) as channel, pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(channel).result(timeout=0.5)
