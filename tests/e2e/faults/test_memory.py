"""Tests of too little memory for one model or one request: only this model or request is refused, and the others are
not affected.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from service.core.digest import Digest
from tests.support.compiled import EXAMPLES
from tests.support.load import Load, under_load
from tests.support.poison import bloat
from tests.support.serving import INT8, UINT8, Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

MIB = 1 << 20
HUGE_BYTES, ROOM_BYTES, BODY_BYTES = 1024 * MIB, 96 * MIB, 200 * MIB
PICTURE = (EXAMPLES / "digits" / "3.png").read_bytes()


@dataclass(frozen=True)
class Scene:
    """A server with a good model, and a model that needs a gigabyte. `log` is the server's log file."""

    served: Served
    huge: Digest
    log: Path

    def predict(self, model: str) -> httpx.Response:
        return httpx.post(
            f"{self.served.url}/v2/models/{model}/infer",
            content=PICTURE,
            headers={"Content-Type": "image/png"},
            timeout=WORK_TIMEOUT_S,
            trust_env=False,
            verify=False,
        )

    @contextmanager
    def little_memory(self) -> Iterator[Load]:
        """Limits the address space of the serving process to slightly more than it uses. During this, clients send
        requests to the good model.
        """
        process = self.served.data_plane()
        taken_bytes = int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()
        _, most = resource.prlimit(process, resource.RLIMIT_AS)
        resource.prlimit(process, resource.RLIMIT_AS, (taken_bytes + ROOM_BYTES, most))
        try:
            with under_load(lambda: self.predict("digits").status_code, clients=2) as load:
                yield load
        finally:
            resource.prlimit(process, resource.RLIMIT_AS, (most, most))
        assert self.served.data_plane() == process  # the data plane is still the same process


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("memory")
    path = folder / "log"
    with path.open("w") as log, serving(folder, log, max_predict_bytes=2 * BODY_BYTES) as served:
        for name, file in (("digits", INT8), ("huge", UINT8)):
            assert served.ended(served.push(file, name)["id"])["state"] == "succeeded"
        assert served.label(3) == 3
        yield Scene(served, bloat(folder / "data", "huge", HUGE_BYTES), path)
        assert served.stop() == 0


@pytest.mark.slow
def test_only_the_model_without_memory_is_refused(scene: Scene) -> None:
    with scene.little_memory() as load:
        refused = scene.predict("huge")
        assert (refused.status_code, refused.json()["code"]) == (503, "memory_full"), refused.text
        assert "huge" in refused.json()["detail"]
        assert int(refused.headers["retry-after"]) > 1  # the server does not try to load it again at once
    assert set(load.statuses) == {200}
    assert any(scene.huge in line and "memory" in line for line in scene.log.read_text().splitlines())


@pytest.mark.slow
def test_it_runs_once_there_is_memory_again(scene: Scene) -> None:
    with scene.little_memory():
        assert scene.predict("huge").status_code == 503
    eventually(lambda: scene.predict("huge").status_code == 200)
    assert scene.served.label(5, "huge") == 5


def test_refusing_a_body_that_is_too_large_needs_no_memory(scene: Scene) -> None:
    headers = {"Inference-Header-Content-Length": "0"}
    with scene.little_memory() as load:
        refused = httpx.post(
            f"{scene.served.url}/v2/models/digits/infer",
            content=bytes(BODY_BYTES),
            headers=headers,
            timeout=WORK_TIMEOUT_S,
            trust_env=False,
            verify=False,
        )
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_tensor"), refused.text
    assert set(load.statuses) == {200}
