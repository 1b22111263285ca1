"""The model_repository extension."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.core.errors import NotReady
from tests.support.data_plane import connect
from tests.support.runners import digits
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    tables.push("unbuilt")
    return tables


async def index(client: httpx.AsyncClient, **request: Any) -> list[tuple[str, str, str]]:
    response = await client.post("/v2/repository/index", **request)
    assert response.status_code == 200
    return [(each["name"], each["version"], each["state"]) for each in response.json()]


async def test_the_index_contains_every_version(tables: Tables) -> None:
    async with connect(tables) as client:
        await client.get("/v2/models/digits/ready")
        expected = [("digits", "1", "READY"), ("unbuilt", "1", "UNAVAILABLE")]
        assert await index(client) == await index(client, json={}) == await index(client, json={"ready": False})
        assert await index(client) == expected
        assert await index(client, json={"ready": True}) == expected[:1]
        (_, unbuilt) = (await client.post("/v2/repository/index")).json()
    assert "has not been built" in unbuilt["reason"]


async def test_a_model_without_requests_is_ready_in_the_index(tables: Tables) -> None:
    async with connect(tables) as client:
        before = (await client.post("/v2/repository/index")).json()
        answers = {name: await client.get(f"/v2/models/{name}/ready") for name in ("digits", "unbuilt")}
        after = await index(client)
    assert [(each["name"], each["state"]) for each in before] == [("digits", "READY"), ("unbuilt", "UNAVAILABLE")]
    assert {name: answer.status_code for name, answer in answers.items()} == {"digits": 200, "unbuilt": 503}
    assert before[0]["reason"] == "it is loaded by the first request for it"
    assert after == [("digits", "1", "READY"), ("unbuilt", "1", "UNAVAILABLE")]


async def test_a_model_is_loaded_unloaded_and_loaded_again(tables: Tables) -> None:
    async with connect(tables) as client:
        for action, state, ready in (("load", "READY", 200), ("unload", "UNAVAILABLE", 503), ("load", "READY", 200)):
            response = await client.post(f"/v2/repository/models/digits/{action}")
            assert response.json() == {"name": "digits", action: True}
            assert (await index(client))[0] == ("digits", "1", state)
            assert (await client.get("/v2/models/digits/ready")).status_code == ready


async def test_a_load_retries_what_failed(tables: Tables) -> None:
    failing = [True]

    def load() -> Any:
        if failing:
            raise NotReady("not yet")
        return digits()

    tables.model("late", load)
    async with connect(tables) as client:
        assert (await client.post("/v2/repository/models/late/load")).status_code == 503
        failing.clear()
        assert (await client.get("/v2/models/late/ready")).status_code == 503  # the model is not ready for some time
        assert (await client.post("/v2/repository/models/late/load", json={"parameters": {}})).status_code == 200


@pytest.mark.parametrize("action", ["load", "unload"])
async def test_an_unknown_model_is_not_found(tables: Tables, action: str) -> None:
    async with connect(tables) as client:
        response = await client.post(f"/v2/repository/models/cats/{action}")
    assert response.status_code == 404
    assert "cats" in response.json()["error"]


@pytest.mark.parametrize("parameter", ["config", "file:1/model.onnx"])
async def test_a_load_with_parameters_is_rejected(tables: Tables, parameter: str) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/repository/models/digits/load", json={"parameters": {parameter: "{}"}})
    assert response.status_code == 422
    assert parameter in response.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("index", b"[]", 400),
        ("index", b'{"ready": 1}', 400),
        ("index", b"{", 400),
        ("models/digits/load", b'{"parameters": 3}', 400),
        ("models/digits/unload", b'{"parameters": {"unload_dependents": "yes"}}', 400),
        ("index", b" " * (1 << 20), 413),
    ],
)
async def test_malformed_requests_are_rejected(tables: Tables, path: str, body: bytes, status: int) -> None:
    async with connect(tables) as client:
        assert (await client.post(f"/v2/repository/{path}", content=body)).status_code == status
