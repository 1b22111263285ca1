"""Tests of fetching a server's artifact: which one is chosen, and that only expected files are unpacked."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from service.cli.artifacts import artifact_of, fetched, folder_of
from service.cli.client import Client
from service.core.digest import digest_of
from service.core.errors import InvalidInput, NotFound, NotReady
from service.core.target import TARGETS, detect_host

ARTIFACT = digest_of(b"an artifact")
HERE = next((target.name for target in TARGETS if target.runs_on(detect_host())), None)
ELSEWHERE = next(target.name for target in TARGETS if not target.runs_on(detect_host()))


def test_a_folder_is_an_artifact(tmp_path: Path) -> None:
    assert folder_of(str(tmp_path)) == tmp_path


def test_the_name_of_a_model_is_not_a_folder() -> None:
    assert folder_of("mobilenet_v2") is None


@pytest.mark.parametrize("given", ["./model.octet", "models/", "Model"])
def test_another_argument_is_refused(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(typer.BadParameter):
        folder_of(given)


def build(artifact: str | None, target: str, state: str = "succeeded") -> dict[str, Any]:
    return {"artifact": artifact, "target": target, "state": state, "version": 1}


def server(*builds: Mapping[str, Any], content: bytes = b"") -> Client:
    def answer(request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/api/v1/models/digits":
                return httpx.Response(200, json={"versions": []})
            case "/api/v1/builds":
                return httpx.Response(200, json={"builds": builds})
            case path if path.endswith("/content"):
                return httpx.Response(200, content=content)
        return httpx.Response(404, json={"code": "not_found", "detail": "there is no such thing", "status": 404})

    return Client("http://test", transport=httpx.MockTransport(answer))


@pytest.mark.skipif(HERE is None, reason="no target runs here")
def test_the_newest_build_that_runs_here_is_used() -> None:
    assert HERE is not None
    builds = [build(None, HERE, "failed"), build(digest_of(b"other"), ELSEWHERE), build(ARTIFACT, HERE)]
    with server(*builds, build(digest_of(b"older"), HERE)) as client:
        assert artifact_of(client, "digits") == ARTIFACT


def test_without_one_an_artifact_for_another_machine_is_used() -> None:
    with server(build(ARTIFACT, ELSEWHERE)) as client:
        assert artifact_of(client, "digits") == ARTIFACT


def test_a_model_that_is_not_built_is_not_ready() -> None:
    with server(build(None, ELSEWHERE, "running")) as client, pytest.raises(NotReady):
        artifact_of(client, "digits")


def test_a_missing_model_is_not_found() -> None:
    with server() as client, pytest.raises(NotFound):
        artifact_of(client, "faces")


def archive(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if data == b"link":
                info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


LAYOUT = (("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'), ("index.json", b'{"schemaVersion": 2, "manifests": []}'))


def test_a_fetched_artifact_is_kept_while_it_is_used() -> None:
    blob = (f"blobs/{ARTIFACT.replace(':', '/')}", b"an artifact")
    with server(content=archive(*LAYOUT, blob)) as client:
        with fetched(client, ARTIFACT) as layout:
            assert layout.blobs.read(ARTIFACT) == b"an artifact"
            root = layout.root
        assert not root.exists()


@pytest.mark.parametrize(
    "member", [("../escaped", b""), ("/etc/cron.d/x", b""), ("blobs/sha256/../../x", b""), ("index.json", b"link")]
)
def test_an_archive_of_other_files_is_refused(member: tuple[str, bytes]) -> None:
    with (
        server(content=archive(member)) as client,
        pytest.raises(InvalidInput, match="unexpected member"),
        fetched(client, ARTIFACT),
    ):
        pass


def test_a_file_that_is_not_an_archive_is_refused() -> None:
    with (
        server(content=b"<html>") as client,
        pytest.raises(InvalidInput, match="damaged"),
        fetched(client, ARTIFACT),
    ):
        pass
