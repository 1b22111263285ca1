"""Requests from the pages of other web sites, which the setting `cors_origins` permits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.api.access.key_orders import apply_key_change
from service.core.access.key import Limits, Scope
from tests.support.data_plane import DataPlane, as_json, client_of, sample_tables
from tests.support.plane_process import plane as plane_process

pytestmark = pytest.mark.anyio

APP, OTHER, STRANGER = "https://app.example", "http://localhost:5173", "https://elsewhere.example"
INFER = "/v2/models/int8/infer"  # the data plane answers it; the control plane answers /v2/repository/index
BODY = as_json(np.zeros((1, 4), np.int8))
ADMIN_KEY = "octet_cluster_" + 48 * "x"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}


def listing(*origins: str, keys: Path | None = None) -> DataPlane:
    needed: dict[str, Any] = {} if keys is None else {"data_dir": keys, "admin_key": ADMIN_KEY}
    return DataPlane(sample_tables(), cors_origins=", ".join(origins), **needed)


def permissions(response: httpx.Response) -> dict[str, str]:
    """Returns the headers by which a server permits a page to read its response."""
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


def is_readable(response: httpx.Response, origin: str) -> bool:
    assert "access-control-allow-credentials" not in response.headers
    named = response.headers.get_list("access-control-allow-origin")
    return named == [origin] and response.headers["access-control-expose-headers"] == "*"


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index", "/nothing/here"])
async def test_pages_of_listed_origins_read_responses_of_both_planes(path: str) -> None:
    async with client_of(listing(APP, OTHER)) as client:
        for origin in (APP, OTHER):
            preflight = await client.options(path, headers={"Origin": origin, **PREFLIGHT})
            assert preflight.is_success
            assert is_readable(preflight, origin)
            assert "POST" in preflight.headers["access-control-allow-methods"].split(", ")
            assert preflight.headers["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
            body = BODY if path == INFER else {}
            sent = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            response = await client.post(path, json=body, headers=sent)
            assert response.status_code == (404 if path.startswith("/nothing") else 200), response.text
            assert is_readable(response, origin)
            assert "origin" in response.headers.get_list("vary")


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index"])
async def test_pages_of_other_origins_read_nothing(path: str) -> None:
    async with client_of(listing(APP)) as client:
        for origin in (STRANGER, "null", APP + ".elsewhere.example", "http://app.example"):
            preflight = await client.options(path, headers={"Origin": origin, **PREFLIGHT})
            response = await client.post(path, json=BODY, headers={"Origin": origin, "Sec-Fetch-Site": "cross-site"})
            assert not preflight.is_success
            assert response.status_code == 403
            assert "cors_origins" in response.json()["hint"]
            assert permissions(preflight) == permissions(response) == {}
            assert "origin" in response.headers.get_list("vary")  # a cache must not give it to a listed origin


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index"])
async def test_without_the_setting_no_page_reads_anything(path: str) -> None:
    async with client_of(DataPlane(sample_tables())) as client:
        preflight = await client.options(path, headers={"Origin": APP, **PREFLIGHT})
        response = await client.get("/v2", headers={"Origin": APP})
    assert preflight.status_code in (403, 405)
    assert response.status_code == 200
    assert permissions(preflight) == permissions(response) == {}
    assert "vary" not in response.headers


async def test_a_page_reads_why_its_key_was_refused(tmp_path: Path) -> None:
    plane = listing(APP, keys=tmp_path)
    async with client_of(plane) as client:
        _, text = plane.services.access.keys.create("a", (Scope.PREDICT,), Limits(requests_per_day=1))
        await apply_key_change(plane.services)
        sent = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
        for path in (INFER, "/v2/repository/index"):
            refused = await client.post(path, json=BODY, headers=sent)
            assert refused.status_code == 401
            assert is_readable(refused, APP)
        sent["Authorization"] = f"Bearer {text}"
        statuses = [await client.post(INFER, json=BODY, headers=sent) for _ in range(2)]
    assert [each.status_code for each in statuses] == [200, 429]
    assert all(is_readable(each, APP) for each in statuses)


async def test_every_origin_may_read_but_a_key_is_needed_to_change_anything(tmp_path: Path) -> None:
    sent = {"Origin": STRANGER, "Sec-Fetch-Site": "cross-site"}
    async with client_of(listing("*")) as client:  # no key is required, so any page could delete models
        response = await client.post(INFER, json=BODY, headers=sent)
        assert response.status_code == 403
        assert is_readable(response, "*")
    async with client_of(listing("*", keys=tmp_path)) as client:
        sent["Authorization"] = f"Bearer {ADMIN_KEY}"
        response = await client.post(INFER, json=BODY, headers=sent)
        assert response.status_code == 200
        assert is_readable(response, "*")
        assert "origin" not in response.headers.get_list("vary")


def test_a_server_without_a_control_plane_permits_pages_too(digits: Path) -> None:
    with plane_process([f"digits={digits}"], OCTET_CORS_ORIGINS=APP) as process:
        url = f"{process.url}/v2/models/digits/infer"
        sent = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
        assert is_readable(httpx.options(url, headers={"Origin": APP, **PREFLIGHT}), APP)
        response = httpx.post(url, json={"inputs": []}, headers=sent)
        assert response.status_code == 400
        assert is_readable(response, APP)
        assert permissions(httpx.post(url, json={}, headers={**sent, "Origin": STRANGER})) == {}
