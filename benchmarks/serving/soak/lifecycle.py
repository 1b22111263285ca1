"""Changes while other clients send requests: new versions, promotions and rollbacks, reloads and unloads, failing
builds.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.harness.home import CHECKOUT
from benchmarks.serving.soak.actors import REFUSED, Actor, Unexpected, checked, hold

LIVE, IDLE, BROKEN = "soak-live", "soak-idle", "soak-broken"
_EXAMPLES = CHECKOUT / "examples"
_FILES = "digits_int8.tflite", "digits_uint8.tflite"
_NUMERICS, _MODE = "litert-reference", "reference"  # the numerics, and their name in the expected results
_DESCRIPTION = (
    b"MLIR Converted."  # a text that occurs in each file; replacing the text gives another file of the same model
)
_BUILD_S = 300.0
_CANARY_PERCENT, _CANARY_S = 30, 1.0
_PICTURE = {"Content-Type": "image/png"}
_WAIT = {"Prefer": "wait=30"}
_PAGES = ("/", "/metrics", "/v2", "/v2/models/stats", "/v2/health/ready", "/api/v1/models", "/api/v1/builds")


def marked(file: str, mark: int) -> bytes:
    """Returns a file of the same model that differs for each `mark`."""
    data = (_EXAMPLES / file).read_bytes()
    assert data.count(_DESCRIPTION) == 1
    return data.replace(_DESCRIPTION, f"{mark:0{len(_DESCRIPTION)}d}".encode())


@dataclass
class Versions:
    """The model whose versions change, and each version's expected output for each picture.

    Attributes:
        files: the file of each version.
    """

    client: httpx.Client
    mark: int
    files: dict[int, str] = field(default_factory=dict)
    _turns: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        expected = json.loads((_EXAMPLES / "expected.json").read_text())
        self._scores = {file: expected[file][_MODE] for file in _FILES}
        self._pictures = [(_EXAMPLES / name).read_bytes() for name in expected["pictures"]]
        self._asked = itertools.cycle(range(len(self._pictures)))

    def ask(self, model: str = LIVE) -> str:
        """Sends a picture. The response must contain the outputs of the version whose number it contains."""
        picture = next(self._asked)
        path = f"/v2/models/{model}/infer"
        response = self.client.post(path, content=self._pictures[picture], headers=_PICTURE)
        status = checked(response, 200, REFUSED)
        if response.is_success:
            answer = response.json()
            file = self.files[int(answer["model_version"])] if model == LIVE else _FILES[0]
            (output,) = answer["outputs"]
            hold(output["data"], self._scores[file][picture], f"{model} version {answer['model_version']}")
        return status

    def renew(self) -> str:
        """Pushes a new version, makes it a canary, then promotes it; every third version is rolled back."""
        turn = next(self._turns)
        version = self.push(turn)
        before = self._stable()
        self._switch("promote", {"version": version, "percent": _CANARY_PERCENT}, before)
        time.sleep(_CANARY_S)
        self._switch("promote", {"version": version}, version)
        if turn % 3 == 2:
            self._switch("rollback", {}, before)
        return "renewed"

    def push(self, turn: int) -> int:
        """Pushes the file for `turn`, waits for its build, and returns its version. Pushing a file again returns the
        same version at once."""
        file = _FILES[turn % len(_FILES)]
        data = marked(file, self.mark + turn)
        build = self._pushed(LIVE, data)
        version = int(build["version"])
        self.files[version] = file
        hold(ended(self.client, build)["state"], "succeeded", f"the build of {LIVE} version {version}")
        again = self._pushed(LIVE, data)
        hold((again["state"], again["version"]), ("succeeded", version), "the same push again")
        return version

    def start(self) -> None:
        """Pushes the first version of both models that change."""
        version = self.push(next(self._turns))
        checked(self.client.post(f"/api/v1/models/{LIVE}/promote", json={"version": version}), 200)
        data = (_EXAMPLES / _FILES[0]).read_bytes()
        hold(ended(self.client, self._pushed(IDLE, data))["state"], "succeeded", f"the build of {IDLE}")

    def unload(self) -> str:
        """Unloads and loads a model that no other client uses: while it is unloaded, it refuses requests; afterwards,
        it answers them."""
        repository = f"/v2/repository/models/{IDLE}"
        checked(self.client.post(f"{repository}/unload"), 200)
        refused = self.client.post(f"/v2/models/{IDLE}/infer", content=self._pictures[0], headers=_PICTURE)
        checked(refused, 503)  # intended
        checked(self.client.post(f"{repository}/load"), 200)
        self.ask(IDLE)
        return "unloaded and loaded"

    def fail(self) -> str:
        """Pushes a truncated file: its build fails, with a reason."""
        data = marked(_FILES[0], self.mark + next(self._turns))
        build = ended(self.client, self._pushed(BROKEN, data[: len(data) // 2]))
        hold(build["state"], "failed", "the build of half a file")
        return str(build["error"]["code"])

    def _pushed(self, name: str, data: bytes) -> dict[str, Any]:
        query = {"name": name, "target": "host", "numerics": _NUMERICS}
        response = self.client.put("/api/v1/models", params=query, content=data)
        checked(response, 200, 202)
        build: dict[str, Any] = response.json()
        return build

    def _stable(self) -> int:
        (alias,) = self.client.get(f"/api/v1/models/{LIVE}/aliases").json()["aliases"]
        return int(alias["version"])

    def _switch(self, action: str, body: dict[str, int], leads_to: int) -> None:
        response = self.client.post(f"/api/v1/models/{LIVE}/{action}", json=body)
        checked(response, 200)
        hold(response.json()["version"], leads_to, f"{action} of {body}")


def ended(client: httpx.Client, build: dict[str, Any]) -> dict[str, Any]:
    """Returns the build when it is over. Raises `Unexpected` if that takes too long."""
    until_s = time.monotonic() + _BUILD_S
    while build["state"] in ("queued", "running"):
        if time.monotonic() > until_s:
            raise Unexpected(f"a build is not over after {_BUILD_S:.0f} s: {build}")
        response = client.get(f"/api/v1/builds/{build['id']}", headers=_WAIT)
        checked(response, 200)
        build = response.json()
    return build


def changers(client: httpx.Client, versions: Versions, served: Sequence[str]) -> list[Actor]:
    names, pages = itertools.cycle(served), itertools.cycle(_PAGES)
    return [
        Actor("picture", 0.1, versions.ask),
        Actor("new version", 10.0, versions.renew),
        Actor("failing build", 30.0, versions.fail),
        Actor("reload", 1.0, lambda: checked(client.post(f"/v2/repository/models/{next(names)}/load", json={}), 200)),
        Actor("unload", 5.0, versions.unload),
        Actor("read", 1.0, lambda: checked(client.get(next(pages)), 200)),
    ]
