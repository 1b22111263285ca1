"""Real artifacts compute HTTP requests in batches. Each client gets its own output."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from service.cache import OciLayout
from service.core.builds.build import BuildState
from service.core.builds.options import with_batch
from service.core.digest import Digest
from service.workers.inference.artifacts import StoredArtifacts
from tests.support.compiled import PICTURES, compile_sample, expected
from tests.support.data_plane import DataPlane, as_binary, serving, unpacked
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S

STAGES = ("queue", "compute_input", "compute_infer", "compute_output")
FILE, SIZE = "digits_uint8.tflite", 4
CLIENTS, REQUESTS = 10, 30


@pytest.fixture(scope="module")
def store(
    compiled: tuple[Path, dict[str, Digest]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[OciLayout, dict[int, Digest]]:
    """The sample, compiled for two batch sizes."""
    root = tmp_path_factory.mktemp("batches")
    shutil.copytree(compiled[0], root / "store")
    layout = OciLayout.open(root / "store")
    return layout, {1: compiled[1][FILE], SIZE: compile_sample(FILE, layout, root / "scratch", SIZE)}


@contextmanager
def served(store: tuple[OciLayout, dict[int, Digest]], **scheduling: float) -> Iterator[str]:
    layout, artifacts = store
    tables = Tables()
    version = tables.push("digits")
    for size, artifact in artifacts.items():
        tables.build("digits", version, BuildState.SUCCEEDED, artifact=artifact)
        tables.builds[0] = replace(tables.builds[0], options=with_batch(size))
    plane = DataPlane(
        tables,
        artifacts=StoredArtifacts(layout),
        scheduling={"queue_size": 64, **scheduling},
        reads=[layout.root],
    )
    with serving(plane) as address:
        yield address


@pytest.mark.parametrize(
    "scheduling", [{"instances": 1}, {"instances": 2}, {"instances": 1, "max_delay_s": 0.005}], ids=str
)
def test_every_client_gets_the_outputs_for_its_own_pictures(
    store: tuple[OciLayout, dict[int, Digest]], scheduling: dict[str, float]
) -> None:
    pixels = np.stack([np.asarray(Image.open(picture).convert("L"))[:, :, None] for picture in PICTURES])
    right = expected(FILE)

    def ask(address: str, seed: int) -> None:
        chance = np.random.default_rng(seed)
        with httpx.Client(base_url=f"http://{address}", timeout=WORK_TIMEOUT_S) as client:
            (tensor,) = client.get("/v2/models/digits").json()["inputs"]
            for _ in range(REQUESTS):
                chosen = chance.integers(0, 10, chance.choice([1, 1, 1, 2, 3, 4]))
                body, headers = as_binary(
                    {tensor["name"]: pixels[chosen]},
                    {"parameters": {"binary_data_output": True, "priority": int(chance.integers(0, 4))}},
                )
                response = client.post("/v2/models/digits/infer", content=body, headers=headers)
                assert response.status_code == 200, response.text
                (answer,) = unpacked(response)[1].values()
                np.testing.assert_array_equal(answer, right[chosen])

    with served(store, **scheduling) as address, ThreadPoolExecutor(CLIENTS) as pool:
        for answer in [pool.submit(ask, address, seed) for seed in range(CLIENTS)]:
            answer.result()
        url = f"http://{address}/v2/models/digits/stats"
        (statistics,) = httpx.get(url, timeout=GIVE_UP_S).json()["model_stats"]
    for stage in ("success", *STAGES):  # each request was answered once, and perf_analyzer requires equal counts
        assert statistics["inference_stats"][stage]["count"] == CLIENTS * REQUESTS
    assert statistics["inference_count"] > statistics["execution_count"]  # some requests were computed together


def test_the_configuration_contains_how_requests_are_scheduled(store: tuple[OciLayout, dict[int, Digest]]) -> None:
    with served(store, instances=2, max_delay_s=0.005, timeout_s=1.5) as address:
        config = httpx.get(f"http://{address}/v2/models/digits/config", timeout=GIVE_UP_S).json()
    assert config["max_batch_size"] == 4
    assert config["instance_group"] == [{"name": "cpu", "kind": "KIND_CPU", "count": 2}]
    batching = config["dynamic_batching"]
    assert batching["max_queue_delay_microseconds"] == 5000
    assert batching["default_queue_policy"]["default_timeout_microseconds"] == 1_500_000
    assert batching["priority_levels"] == 3
