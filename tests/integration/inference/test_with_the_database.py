"""The registry with the real builds table and the real store: the states of a build determine predictions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from service.cache import OciLayout
from service.core.artifacts.artifact import LIBRARY_MEDIA_TYPE
from service.core.builds.build import Build, BuildInputs, BuildState
from service.core.digest import Digest, digest_of
from service.core.errors import BuildFailed
from service.core.target import detect_host
from service.db import BuildStore, Database, ModelStore
from service.workers.inference.artifacts import StoredArtifacts
from tests.support.compiled import PICTURES, expected
from tests.support.data_plane import DataPlane, client_of
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio

TARGET = detect_host().target.name
INT8, UINT8 = "digits_int8.tflite", "digits_uint8.tflite"
RAW = {"Inference-Header-Content-Length": "0"}


class Service:
    """A data plane with a database and a store. The class replaces the other processes that take part in a build."""

    def __init__(self, folder: Path, store: OciLayout, artifacts: dict[str, Digest]) -> None:
        self.store, self.artifacts = store, artifacts
        self.database = Database(f"sqlite:///{folder / 'octet.sqlite3'}")
        self.database.migrate()
        self.builds, self.models = BuildStore(self.database), ModelStore(self.database)
        self.plane = DataPlane(
            self.builds,
            models=self.models,
            artifacts=StoredArtifacts(store),
            on_lost=self.submit_again,
            targets=(TARGET,),
            reads=[store.root],
        )
        self.client: httpx.AsyncClient

    def push(self, name: str, file: str, numerics: str = "litert-reference") -> Build:
        """Does what the control plane does for an upload."""
        version = self.models.push(name, digest_of(file.encode()), "tflite", 1)
        inputs = BuildInputs(version.source, TARGET, numerics, {})
        return self.builds.submit(inputs, name, version.number)[0]

    def submit_again(self, build: Build) -> None:
        self.builds.submit(BuildInputs(build.source, TARGET, build.numerics, {}), build.model, build.version)

    def work(self, file: str | None) -> None:
        """Does what a compile worker does with the oldest build: stores the artifact of `file`, or fails."""
        claim = self.builds.claim("worker", 30)
        assert claim is not None
        if file:
            self.builds.finish(claim, artifact=self.artifacts[file])
        else:
            self.builds.finish(claim, error=BuildFailed("out of luck"))

    async def predict(self, url: str) -> httpx.Response:
        return await self.client.post(f"/v2/models/{url}/infer", content=PICTURES[3].read_bytes(), headers=RAW)

    async def answers_as(self, url: str, file: str) -> bool:
        response = await self.predict(url)
        assert response.status_code == 200, response.text
        return bool(response.json()["outputs"][0]["data"] == expected(file)[3].tolist())


@pytest.fixture
async def service(tmp_path: Path, store: OciLayout, artifacts: dict[str, Digest]) -> AsyncIterator[Service]:
    service = Service(tmp_path, store, artifacts)
    async with client_of(service.plane) as service.client:
        yield service
    service.database.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def test_a_model_from_unknown_to_served(service: Service) -> None:
    assert (await service.predict("digits")).status_code == 404
    service.push("digits", INT8)
    queued = await service.predict("digits")
    assert queued.status_code == 503
    assert "is being built (queued)" in queued.json()["error"]
    service.work(INT8)
    assert await service.answers_as("digits", INT8)
    assert await service.answers_as("digits/versions/1", INT8)
    assert (await service.predict("digits/versions/2")).status_code == 404


async def test_a_failed_build_is_reported_and_the_previous_version_is_served(service: Service) -> None:
    service.push("digits", INT8)
    service.work(INT8)
    service.push("digits", UINT8)
    service.work(None)
    assert await service.answers_as("digits", INT8)
    failed = await service.predict("digits/versions/2")
    assert failed.status_code == 503
    assert "could not be built: out of luck" in failed.json()["error"]
    assert "retry-after" not in failed.headers


async def test_a_new_version_takes_over_when_it_is_built(service: Service) -> None:
    service.push("digits", INT8)
    service.work(INT8)
    assert await service.answers_as("digits", INT8)
    service.push("digits", UINT8)
    assert await service.answers_as("digits", INT8)
    service.work(UINT8)
    await until(lambda: service.answers_as("digits", UINT8))
    assert await service.answers_as("digits/versions/1", INT8)


async def test_the_version_requested_last_is_served(service: Service) -> None:
    service.push("digits", INT8)
    service.work(INT8)
    service.push("digits", INT8, numerics="xnnpack")
    service.work(UINT8)  # represents other bytes, because the table does not depend on the outputs of an artifact
    await until(lambda: service.answers_as("digits", UINT8))
    service.push("digits", INT8)  # the result is cached, so nothing is built, but this is the latest request
    await until(lambda: service.answers_as("digits", INT8))


async def test_models_that_share_a_build_are_both_served(service: Service) -> None:
    service.push("one", INT8)
    service.push("other", INT8)
    service.work(INT8)
    for name in ("one", "other"):
        assert await service.answers_as(name, INT8)
        assert (await service.predict(name)).json()["model_name"] == name


async def test_a_damaged_artifact_is_rebuilt_and_then_served(service: Service) -> None:
    first = service.push("digits", INT8)
    service.work(INT8)
    manifest = service.store.manifest(service.artifacts[INT8])
    library = next(layer.digest for layer in manifest.layers if layer.media_type == LIBRARY_MEDIA_TYPE)
    path = service.store.root / "blobs" / library.replace(":", "/")
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:-1] + b"?")
    damaged = await service.predict("digits")
    assert damaged.status_code == 503
    assert "being rebuilt" in damaged.json()["hint"]
    again = await service.predict("digits")
    assert "is being built (queued)" in again.json()["error"]
    (rebuild,), _ = service.builds.list("digits", BuildState.QUEUED)
    assert (rebuild.key, rebuild.id != first.id) == (first.key, True)
    service.store.blobs.put_bytes(whole)  # the same inputs give the same artifact
    service.work(INT8)
    assert await service.answers_as("digits", INT8)
    assert json.loads((await service.client.get("/v2/models/digits")).text)["versions"] == ["1"]
