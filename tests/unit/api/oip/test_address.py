"""The version that a request names: a number or an alias, in the URL or behind the model's name."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from service.api.oip.address import parse_address, parse_addresses
from service.core.errors import InvalidInput, NotFound
from service.workers.inference import Reference
from tests.support.data_plane import as_json, connect
from tests.support.runners import digits
from tests.support.tables import Tables

BODY = as_json(np.zeros((1, 8, 8, 1), np.uint8), "image")


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [
        ("digits", "", ("digits", None)),
        ("digits", "2", ("digits", 2)),
        ("digits", "stable", ("digits", "stable")),
        ("digits@stable", "", ("digits", "stable")),
        ("digits@2", "", ("digits", 2)),
        ("digits@", "", ("digits", None)),
        ("digits@", "2", ("digits", 2)),
    ],
)
def test_addresses(model: str, version: str, expected: tuple[str, Reference]) -> None:
    assert parse_address(model, version) == expected


@pytest.mark.parametrize("version", ["-1", "1.5", "Stable", "9" * 10, "²", "stable\n", "a@b"])
def test_what_is_neither_a_number_nor_an_alias_is_no_version(version: str) -> None:
    with pytest.raises(NotFound, match="no such version"):
        parse_address("digits", version)


def test_a_version_that_is_named_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        parse_address("digits@stable", "2")


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
async def test_the_answer_says_which_version_it_is_of(tables: Tables, path: str, version: int) -> None:
    async with connect(tables) as client:
        answer = (await client.post(f"/v2/models/{path}/infer", json=BODY)).json()
        metadata = (await client.get(f"/v2/models/{path}")).json()
        ready = await client.get(f"/v2/models/{path}/ready")
    assert (answer["model_name"], answer["model_version"]) == ("digits", str(version))
    assert answer["outputs"][1]["data"] == [version]
    assert (metadata["name"], metadata["versions"]) == ("digits", ["1", "2"])
    assert ready.status_code == 200


@pytest.mark.anyio
async def test_the_affinity_header_chooses_the_same_version_again(tables: Tables) -> None:
    tables.promote("digits", 2, percent=50)
    async with connect(tables) as client:
        for user in range(10):
            headers = {"Octet-Affinity": f"user-{user}"}
            versions = {
                (await client.post("/v2/models/digits/infer", json=BODY, headers=headers)).json()["model_version"]
                for _ in range(5)
            }
            assert len(versions) == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [("", []), ("a", [("a", None)]), ("a, b@stable,c@2 ,", [("a", None), ("b", "stable"), ("c", 2)]), ("*", None)],
)
def test_several_addresses(text: str, names: list[tuple[str, Reference]] | None) -> None:
    assert parse_addresses(text) == names
