"""The version that computes a request is selected by number, by alias, by the client's affinity, or at random."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.support.data_plane import as_json, connect
from tests.support.runners import digits
from tests.support.tables import Tables

BODY = as_json(np.zeros((1, 8, 8, 1), np.uint8), "image")


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    for version in (1, 2):
        tables.built("digits", tables.push("digits"), partial(digits, version))
    tables.promote("digits", 1)
    return tables


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("digits", 1),
        ("digits/versions/stable", 1),
        ("digits@stable", 1),
        ("digits/versions/latest", 2),
        ("digits@latest", 2),
        ("digits@2", 2),
    ],
)
@pytest.mark.anyio
async def test_the_response_contains_its_version(tables: Tables, path: str, version: int) -> None:
    async with connect(tables) as client:
        answer = (await client.post(f"/v2/models/{path}/infer", json=BODY)).json()
        metadata = (await client.get(f"/v2/models/{path}")).json()
        ready = await client.get(f"/v2/models/{path}/ready")
    assert (answer["model_name"], answer["model_version"]) == ("digits", str(version))
    assert answer["outputs"][1]["data"] == [version]
    assert (metadata["name"], metadata["versions"]) == ("digits", ["1", "2"])
    assert ready.status_code == 200


@pytest.mark.anyio
async def test_the_affinity_header_selects_the_same_version_again(tables: Tables) -> None:
    tables.promote("digits", 2, percent=50)
    async with connect(tables) as client:
        for user in range(10):
            headers = {"Octet-Affinity": f"user-{user}"}
            versions = {
                (await client.post("/v2/models/digits/infer", json=BODY, headers=headers)).json()["model_version"]
                for _ in range(5)
            }
            assert len(versions) == 1


@pytest.mark.anyio
async def test_without_it_the_version_is_random(tables: Tables) -> None:
    tables.promote("digits", 2, percent=50)
    async with connect(tables) as client:
        versions = [
            (await client.post("/v2/models/digits/infer", json=BODY)).json()["model_version"] for _ in range(100)
        ]
    assert 10 < versions.count("1") < 90
