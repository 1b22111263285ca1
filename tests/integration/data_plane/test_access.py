"""Access over HTTP: keys with their scopes, rates and quotas, and requests from pages of other sites."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.api.access.key_orders import apply_key_change
from service.api.app import control_plane
from service.core.access.key import Limits, Scope
from tests.support.data_plane import DataPlane, as_json, client_of, sample_tables

pytestmark = pytest.mark.anyio

ADMIN_KEY = "octet_cluster_" + 48 * "x"
INFER = "/v2/models/int8/infer"
BODY = as_json(np.zeros((1, 4), np.int8))
ELSEWHERE = "https://elsewhere.example"


@pytest.fixture
async def plane(tmp_path: Path) -> DataPlane:
    return DataPlane(sample_tables(), data_dir=tmp_path, admin_key=ADMIN_KEY)


@pytest.fixture
async def client(plane: DataPlane) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plane) as client:
        yield client


@pytest.fixture
async def anybodys() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that does not require keys."""
    async with client_of(DataPlane(sample_tables())) as client:
        yield client


async def key(plane: DataPlane, *scopes: Scope, **limits: Any) -> tuple[str, dict[str, str]]:
    """Returns the id of a new key, and the header that contains the key."""
    made, text = plane.services.access.keys.create("a", scopes, Limits(**limits))
    await apply_key_change(plane.services)
    return made.id, {"Authorization": f"Bearer {text}"}


async def test_every_operation_of_the_document_exists_and_requires_its_scope(
    plane: DataPlane, client: httpx.AsyncClient
) -> None:
    keys = {scope: (await key(plane, scope))[1] for scope in Scope}
    for template, item in control_plane().openapi()["paths"].items():
        path = template.replace("{model}", "int8").replace("{version}", "1")
        for method in ("get", "post"):
            if not path.startswith("/v2") or method not in item:
                continue
            needed = [scope for scope in Scope if f"`{scope}`" in str(item[method]["responses"].get("403", ""))]
            request: dict[str, Any] = {"json": BODY if path.endswith("infer") else {}} if method == "post" else {}
            without = await client.request(method, path, **request)
            assert without.status_code == (401 if needed else 200), (method, path)
            for scope, header in keys.items():
                may = not needed or scope in needed or scope is Scope.ADMIN
                answer = await client.request(method, path, headers=header, **request)
                assert answer.status_code == (200 if may else 403), (method, path, scope, answer.text)


async def test_the_error_for_an_invalid_key_explains_the_header(client: httpx.AsyncClient) -> None:
    how = "Authorization: Bearer KEY"
    for shown, hint in (("", how), ("Basic abc", how), (f"Bearer {ADMIN_KEY[:-1]}y", "octet keys list")):
        answer = await client.post(INFER, json=BODY, headers={"Authorization": shown} if shown else {})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert hint in answer.json()["hint"]
        assert ADMIN_KEY[14:-1] not in answer.text
    admin = await client.post(INFER, json=BODY, headers={"Authorization": f"bearer {ADMIN_KEY}"})
    assert admin.status_code == 200


async def test_a_revoked_key_is_rejected_from_then_on(plane: DataPlane, client: httpx.AsyncClient) -> None:
    id, header = await key(plane, Scope.PREDICT)
    assert (await client.post(INFER, json=BODY, headers=header)).status_code == 200
    plane.services.access.keys.revoke(id)
    await apply_key_change(plane.services)
    assert (await client.post(INFER, json=BODY, headers=header)).status_code == 401


async def test_a_quota_is_used_up(plane: DataPlane, client: httpx.AsyncClient) -> None:
    _, header = await key(plane, Scope.PREDICT, requests_per_day=2)
    statuses = [(await client.post(INFER, json=BODY, headers=header)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    await plane.orders.gather()  # sends the count to the control plane, which sends the total to the data plane
    refused = await client.post(INFER, json=BODY, headers=header)
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert 'octet_requests_not_allowed_total{reason="quota_exceeded"} 2.0' in await plane.scraped()


async def test_the_rate_is_limited(plane: DataPlane, client: httpx.AsyncClient) -> None:
    _, header = await key(plane, Scope.PREDICT, requests_per_s=0.01)
    answers = [await client.post(INFER, json=BODY, headers=header) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].json()["code"] == "rate_limited"
    assert int(answers[1].headers["retry-after"]) > 1


async def test_requests_from_another_site_are_rejected(anybodys: httpx.AsyncClient) -> None:
    refused = await anybodys.post(INFER, json=BODY, headers={"Origin": ELSEWHERE})
    assert (refused.status_code, refused.json()["code"]) == (403, "cross_site")
    for path in ("/v2/models/int8", "/v2"):
        refused = await anybodys.get(path, headers={"Host": "elsewhere.example"})
        assert (refused.status_code, refused.json()["code"]) == (403, "foreign_host")
    assert (await anybodys.get("/v2/health/live", headers={"Host": "elsewhere.example"})).status_code == 200
    assert (await anybodys.post(INFER, json=BODY, headers={"Origin": str(anybodys.base_url)})).status_code == 200
