"""The data plane serves real artifacts: its outputs are right, and a damaged store gives no output."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from tritonclient import http as triton

from service.cache import OciLayout
from service.core.artifacts.artifact import LIBRARY_MEDIA_TYPE, Report
from service.core.builds.build import Build, BuildState
from service.core.digest import Digest
from service.core.target import detect_host
from service.workers.inference.artifacts import StoredArtifacts
from tests.support.assembly import constructor
from tests.support.compiled import PICTURES, expected
from tests.support.data_plane import DataPlane, connect, serving
from tests.support.poison import with_library
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio

SAMPLES = ("digits_int8.tflite", "digits_uint8.tflite")
RAW = {"Inference-Header-Content-Length": "0"}


def tables_of(artifacts: dict[str, Digest]) -> Tables:
    """Returns tables with one model for each sample. Its name is the file name without the suffix."""
    tables = Tables()
    for file, artifact in artifacts.items():
        name = file.removesuffix(".tflite")
        tables.build(name, tables.push(name), BuildState.SUCCEEDED, artifact=artifact)
    return tables


@pytest.mark.parametrize("file", SAMPLES)
async def test_pictures_get_the_outputs_of_the_reference_runtime(
    store: OciLayout, artifacts: dict[str, Digest], file: str
) -> None:
    url = f"/v2/models/{file.removesuffix('.tflite')}/infer"
    async with connect(tables_of(artifacts), artifacts=StoredArtifacts(store), reads=[store.root]) as client:
        answers = [
            (await client.post(url, content=picture.read_bytes(), headers=RAW)).json()["outputs"][0]["data"]
            for picture in PICTURES
        ]
    np.testing.assert_array_equal(answers, expected(file))


def test_concurrent_clients_each_get_their_own_output(store: OciLayout, artifacts: dict[str, Digest]) -> None:
    pixels = [np.asarray(Image.open(picture).convert("L"))[None, :, :, None] for picture in PICTURES]
    right = expected("digits_uint8.tflite")

    def ask(address: str) -> None:
        client = triton.InferenceServerClient(address)
        (name,) = (entry["name"] for entry in client.get_model_metadata("digits_uint8")["inputs"])
        for index in np.random.default_rng(0).permutation(np.arange(100) % 10):
            tensor = triton.InferInput(name, [1, 16, 16, 1], "UINT8")
            tensor.set_data_from_numpy(pixels[index])
            result = client.infer("digits_uint8", [tensor])
            (output,) = (entry["name"] for entry in result.get_response()["outputs"])
            np.testing.assert_array_equal(result.as_numpy(output)[0], right[index])
        client.close()

    plane = DataPlane(tables_of(artifacts), artifacts=StoredArtifacts(store), reads=[store.root])
    with serving(plane) as address, ThreadPoolExecutor(4) as pool:
        for answer in [pool.submit(ask, address) for _ in range(4)]:
            answer.result()


def test_concurrent_models_give_the_same_outputs_as_alone(store: OciLayout, artifacts: dict[str, Digest]) -> None:
    def ask(address: str, file: str) -> None:
        with httpx.Client(base_url=f"http://{address}", headers=RAW, timeout=GIVE_UP_S) as client:
            for index in np.random.default_rng(0).permutation(np.arange(100) % 10):
                picture = PICTURES[index].read_bytes()
                answer = client.post(f"/v2/models/{file.removesuffix('.tflite')}/infer", content=picture)
                np.testing.assert_array_equal(answer.json()["outputs"][0]["data"], expected(file)[index])

    plane = DataPlane(tables_of(artifacts), artifacts=StoredArtifacts(store), reads=[store.root])
    with serving(plane) as address, ThreadPoolExecutor(4) as pool:
        for answer in [pool.submit(ask, address, file) for file in SAMPLES * 2]:
            answer.result()


def overwrite(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"\x7fELF" + bytes(path.stat().st_size - 4))


@pytest.mark.parametrize("damage", [overwrite, Path.unlink])
@pytest.mark.parametrize("part", ["library", "manifest", "numerics"])
async def test_a_damaged_artifact_is_never_served_and_is_rebuilt(
    store: OciLayout, artifacts: dict[str, Digest], damage: Callable[[Path], None], part: str
) -> None:
    file = SAMPLES[0]
    artifact = artifacts[file]
    manifest = store.manifest(artifact)
    (report,) = (each for each in store.referrers(artifact) if each.artifact_type == Report.NUMERICS)
    damaged = {
        "library": next(layer.digest for layer in manifest.layers if layer.media_type == LIBRARY_MEDIA_TYPE),
        "manifest": artifact,
        "numerics": store.manifest(report.digest).layers[0].digest,
    }[part]
    damage(store.root / "blobs" / damaged.replace(":", "/"))
    tables, lost = tables_of({file: artifact}), list[Build]()
    (build,) = tables.builds
    async with connect(tables, artifacts=StoredArtifacts(store), on_lost=lost.append, reads=[store.root]) as client:
        response = await client.post("/v2/models/digits_int8/infer", content=PICTURES[0].read_bytes(), headers=RAW)
    assert response.status_code == 503
    assert "damaged" in response.json()["error"]
    assert (lost, tables.builds) == ([build], [])


async def test_a_library_with_a_constructor_is_refused_before_it_is_loaded(
    store: OciLayout, artifacts: dict[str, Digest], tmp_path: Path
) -> None:
    made = tmp_path / "made"
    library = constructor(tmp_path, made, detect_host().architecture).read_bytes()
    tables = tables_of({SAMPLES[0]: with_library(store, artifacts[SAMPLES[0]], library)})
    async with connect(tables, artifacts=StoredArtifacts(store), reads=[store.root]) as client:
        response = await client.post("/v2/models/digits_int8/infer", content=PICTURES[0].read_bytes(), headers=RAW)
    assert response.status_code == 503
    assert "initializers (DT_INIT_ARRAY)" in response.json()["error"]
    assert not made.exists()


async def test_an_unverified_artifact_is_never_served(store: OciLayout, artifacts: dict[str, Digest]) -> None:
    report = {"verified": False, "reason": "this host lacks i8mm"}
    store.attach(artifacts[SAMPLES[0]], Report.NUMERICS, json.dumps(report).encode())
    tables = tables_of({SAMPLES[0]: artifacts[SAMPLES[0]]})
    async with connect(tables, artifacts=StoredArtifacts(store), reads=[store.root]) as client:
        response = await client.get("/v2/models/digits_int8/ready")
    assert response.status_code == 503
    assert "was not verified: this host lacks i8mm" in response.json()["error"]
    assert len(tables.builds) == 1
