"""Promotion and rollback on a real server with third-party clients, and the state after the server was killed."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from tritonclient import http as triton
from typer.testing import CliRunner

from service.cli.app import app
from tests.integration.serve.conftest import LEASE
from tests.support.compiled import PICTURES, expected
from tests.support.serving import INT8, UINT8, Served, serving
from tests.support.waiting import WORK_TIMEOUT_S, eventually

FILES = {"1": INT8, "2": UINT8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server with two versions of a model. The server is not running."""
    folder = tmp_path_factory.mktemp("aliases")
    with serving(folder, **LEASE) as served:
        for file in FILES.values():
            assert served.ended(served.push(file)["id"])["state"] == "succeeded"
        assert served.stop() == 0
    return folder


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    with serving(folder, **LEASE) as served:
        yield served
        assert served.stop() == 0


def octet(served: Served, command: str) -> Any:
    """Runs a command and returns its output, parsed as JSON."""
    result = CliRunner().invoke(app, [*command.split(), "--json", "--server", served.url])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def answer(served: Served, model: str, version: str = "") -> str:
    """Sends a request without an alias, checks the output, and returns the version that computed it."""
    client = triton.InferenceServerClient(served.url.removeprefix("http://"))
    (spec,) = client.get_model_metadata(model, version)["inputs"]
    pixels = np.asarray(Image.open(PICTURES[3]).convert("L"))[None, :, :, None]
    stored = pixels if spec["datatype"] == "UINT8" else (pixels.astype(np.int16) - 128).astype(np.int8)
    tensor = triton.InferInput(spec["name"], [1, 16, 16, 1], spec["datatype"])
    tensor.set_data_from_numpy(stored)
    result = client.infer(model, [tensor], version)
    response = result.get_response()
    (output,) = response["outputs"]
    found: str = response["model_version"]
    np.testing.assert_array_equal(result.as_numpy(output["name"])[0], expected(FILES[found])[3])
    client.close()
    return found


@pytest.mark.slow
def test_clients_and_commands(served: Served) -> None:
    assert answer(served, "digits") == "2"
    assert octet(served, "promote digits:1")["version"] == 1
    assert [answer(served, "digits"), answer(served, "digits@stable"), answer(served, "digits", "stable")] == ["1"] * 3
    assert answer(served, "digits@latest") == "2"
    shared = octet(served, "promote digits:2 --percent 30")
    assert (shared["version"], shared["canary"]) == (1, {"version": 2, "percent": 30})
    (listed,) = octet(served, "models")
    assert listed["aliases"] == [shared]
    assert [len(version["aliases"]) for version in octet(served, "models digits")] == [1, 1]
    assert octet(served, "promote digits:2")["previous"] == [1]
    assert answer(served, "digits") == "2"
    assert octet(served, "rollback digits")["version"] == 1
    assert answer(served, "digits") == "1"


class Promoter:
    """Promotes one version and then the other, repeatedly, until the server has ended."""

    def __init__(self, served: Served) -> None:
        self.asked = self.answered = served.client.get("/api/v1/models/digits/aliases").json()["aliases"][0]["version"]
        self.count = 0
        self.thread = threading.Thread(target=self._work, args=(served.url,))
        self.thread.start()

    def _work(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=WORK_TIMEOUT_S, trust_env=False) as client:
            while True:
                self.asked = 3 - self.answered
                try:
                    response = client.post("/api/v1/models/digits/promote", json={"version": self.asked})
                except httpx.TransportError:
                    return
                assert response.status_code == 200, response.text
                self.answered = self.asked
                self.count += 1


def killed_while_it_promotes(folder: Path, promotions: int) -> Promoter:
    with serving(folder, **LEASE) as served:
        octet(served, "promote digits:1")
        promoter = Promoter(served)
        while promoter.count < promotions:
            assert promoter.thread.is_alive()
        served.kill()
        promoter.thread.join()
    return promoter


def stable(served: Served) -> int:
    (alias,) = served.client.get("/api/v1/models/digits/aliases").json()["aliases"]
    assert answer(served, "digits") == str(alias["version"])
    return int(alias["version"])


@pytest.mark.slow
def test_after_a_kill_the_alias_is_the_old_or_the_new_one_even_without_the_database(folder: Path) -> None:
    promoter = killed_while_it_promotes(folder, promotions=3)
    with serving(folder, **LEASE) as served:
        left = stable(served)
        assert left in {promoter.answered, promoter.asked}
        served.kill()
    for file in (folder / "data").glob("octet.sqlite3*"):
        file.unlink()
    with serving(folder, preload="digits@stable", **LEASE) as served:
        eventually(lambda: served.client.get("/v2/health/ready").is_success)
        metrics = served.client.get("/metrics").text
        loaded = re.findall(r'^octet_artifact_info\{.*version="(\d+)"', metrics, re.MULTILINE)
        assert loaded == [str(left)]  # no request for it was needed
        assert stable(served) == left
        builds = served.client.get("/api/v1/builds").json()["builds"]
        assert {build["state"] for build in builds} == {"succeeded"}


@pytest.mark.slow
@pytest.mark.parametrize("promotions", range(12))
def test_a_kill_after_any_number_of_promotions(folder: Path, promotions: int) -> None:
    promoter = killed_while_it_promotes(folder, promotions)
    if promotions % 2:
        for file in (folder / "data").glob("octet.sqlite3*"):
            file.unlink()
    with serving(folder, **LEASE) as served:
        assert stable(served) in {promoter.answered, promoter.asked}
