"""Artifacts that were compiled offline are served, and served artifacts are pulled. Each command runs in a new
process.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.cache import OciLayout
from service.core.artifacts.artifact import ARTIFACT_TYPE
from tests.support.compiled import EXAMPLES
from tests.support.serving import Served, environment, serving
from tests.support.waiting import WORK_TIMEOUT_S

PICTURE = EXAMPLES / "digits" / "7.png"
EXPECTED = json.loads((EXAMPLES / "expected.json").read_text())["digits_int8.tflite"]["reference"][7]


def octet(*arguments: object, status: int = 0) -> Any:
    command = [sys.executable, "-m", "service.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=WORK_TIMEOUT_S)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled") / "digits.octet"
    octet("compile", EXAMPLES / "digits_int8.tflite", "--output", folder)
    return folder


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that has not compiled anything."""
    with serving(tmp_path_factory.mktemp("empty")) as served:
        yield served


def artifact_in(folder: Path) -> str:
    (entry,) = [each for each in OciLayout.open(folder).index() if each.artifact_type == ARTIFACT_TYPE]
    return entry.digest


def test_an_artifact_is_pushed_and_pulled(compiled: Path, empty: Served, tmp_path: Path) -> None:
    pushed = octet("push", compiled, "--server", empty.url)
    assert pushed["build"]["state"] == "succeeded"
    assert pushed["build"]["model"] == "digits"
    assert pushed["build"]["artifact"] == artifact_in(compiled)
    assert pushed["reports"]["numerics"]["verified"] is True
    stages = {event.data["stage"] for event in empty.events(pushed["build"]["id"]) if event.kind == "stage"}
    assert "verify" in stages
    assert not stages & {"import", "codegen", "link"}  # nothing was compiled
    assert empty.label(7) == 7

    pulled = octet("pull", "digits", tmp_path / "pulled.octet", "--server", empty.url)
    assert pulled["artifact"] == artifact_in(tmp_path / "pulled.octet") == artifact_in(compiled)
    assert octet("run", tmp_path / "pulled.octet", PICTURE, "--raw")["outputs"][0]["data"] == EXPECTED
    assert octet("verify", tmp_path / "pulled.octet")["verified"] is True

    again = octet("push", tmp_path / "pulled.octet", "--name", "digits", "--server", empty.url)
    assert (again["cached"], again["build"]["version"]) == (True, 1)


@pytest.mark.slow
def test_an_artifact_that_the_server_compiled_is_pulled_too(served: Served, tmp_path: Path) -> None:
    pulled = octet("pull", "digits:1", tmp_path / "digits", "--server", served.url)
    assert pulled["artifact"] == artifact_in(tmp_path / "digits")
    assert octet("run", tmp_path / "digits", PICTURE, "--raw")["outputs"][0]["data"] == EXPECTED
    assert octet("pull", "digits", tmp_path / "digits", "--server", served.url, status=1)["error"]["code"] == "conflict"
    error = octet("pull", "digits:9", tmp_path / "none", "--server", served.url, status=1)["error"]
    assert error["code"] == "not_ready"
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_pulled_artifacts_include_their_labels(served: Served, empty: Served, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"the {digit}\n" for digit in range(10)))
    options = "--labels", labels, "--mean", "0.5", "--std", "0.5"
    octet("push", EXAMPLES / "digits_uint8.tflite", "--name", "named", *options, "--server", served.url)
    octet("pull", "named", tmp_path / "named.octet", "--server", served.url)
    assert octet("run", tmp_path / "named.octet", PICTURE)["top"][0]["label"] == "the 7"
    octet("push", tmp_path / "named.octet", "--name", "named", "--server", empty.url)
    assert octet("predict", "named", PICTURE, "--server", empty.url)["top"][0]["label"] == "the 7"
    assert empty.client.get("/v2/models/named").json()["parameters"]["mean"] == [0.5]


def archive(folder: Path, flip: bytes | None = None) -> bytes:
    """Returns the folder as a tar archive. One bit is inverted in the file whose content begins with `flip`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as packed:
        for path in sorted(
            (each for each in folder.rglob("*") if each.is_file()), key=lambda each: each.name != "oci-layout"
        ):
            data = bytearray(path.read_bytes())
            if flip is not None and data.startswith(flip):
                data[len(data) // 2] ^= 1
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def test_an_archive_is_pushed_by_one_curl_command(compiled: Path, empty: Served) -> None:
    response = empty.client.put("/api/v1/artifacts", params={"name": "by-curl"}, content=archive(compiled))
    assert empty.ended(response.json()["id"])["state"] == "succeeded"
    assert empty.label(5, "by-curl") == 5


def test_a_damaged_artifact_is_never_served(compiled: Path, empty: Served) -> None:
    content = archive(compiled, flip=b"\x7fELF")
    response = empty.client.put("/api/v1/artifacts", params={"name": "damaged"}, content=content)
    build = empty.ended(response.json()["id"])
    assert (build["state"], build["error"]["code"]) == ("failed", "digest_mismatch")
    (model,) = empty.client.get("/api/v1/models/damaged").json()["versions"]
    assert (model["state"], model["artifact"]) == ("failed", None)
    assert empty.client.get("/v2/models/damaged").status_code == 503


def test_an_artifact_is_not_recompiled_for_another_target(compiled: Path, empty: Served) -> None:
    octet("push", compiled, "--server", empty.url)
    response = empty.client.post("/api/v1/models/digits/builds", json={"targets": ["aarch64"]})
    assert (response.status_code, response.json()["code"]) == (422, "unsupported")
