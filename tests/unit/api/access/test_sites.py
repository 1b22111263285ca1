"""Tests with the headers that browsers send on requests from pages of other sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.api.access.sites import Sites, is_local
from service.core.errors import CrossSite, ForeignHost
from service.core.settings import Settings
from tests.support.control_plane import MODEL, ControlPlane, control_plane

HERE, ELSEWHERE = "http://127.0.0.1:8080", "https://elsewhere.example"


def check(method: str = "POST", settings: Any = None, **sent_headers: str) -> None:
    headers = {"host": "127.0.0.1:8080", "content-type": "text/plain"}
    headers |= {name.replace("_", "-"): value for name, value in sent_headers.items()}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    Sites(Settings(**(settings or {}))).check(method, encoded)


@pytest.mark.parametrize(
    "headers",
    [
        {},  # curl and all SDKs send none of these headers
        {"sec_fetch_site": "same-origin", "origin": HERE},
        {"sec_fetch_site": "none"},
        {"origin": HERE},
        {"origin": "HTTP://LOCALHOST:8080", "host": "localhost:8080"},
        {
            "origin": "https://octet.example",
            "sec_fetch_site": "same-origin",
        },  # a proxy that replaces the Host header by its own name
    ],
)
def test_requests_that_are_not_from_another_site_are_allowed(headers: dict[str, str]) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        check(method, **headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site", "origin": ELSEWHERE},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": "http://127.0.0.1:3000"},
        {"origin": ELSEWHERE},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "null"},
        {"origin": ""},
    ],
)
def test_a_page_of_another_site_cannot_change_anything(headers: dict[str, str]) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        with pytest.raises(CrossSite):
            check(method, **headers)
    check("GET", **headers)  # harmless: the page cannot read the response


def test_a_page_of_a_listed_origin_may_change_something() -> None:
    page = {"sec_fetch_site": "cross-site", "origin": ELSEWHERE}
    check(settings={"cors_origins": f"https://app.example, {ELSEWHERE}"}, **page)
    for others in ("https://app.example", "*"):  # no key protects the server, so "*" does not suffice
        with pytest.raises(CrossSite):
            check(settings={"cors_origins": others}, **page)


@pytest.mark.parametrize("host", ["elsewhere.example:8080", "elsewhere.example", "localhost.example", "10.0.0.1:8080"])
def test_an_unknown_host_name_is_refused(host: str) -> None:
    for method in ("GET", "POST"):
        with pytest.raises(ForeignHost, match=host):
            check(method, host=host, origin=f"http://{host}", sec_fetch_site="same-origin")
    check(host=host, settings={"auth": "off"})


def test_the_configured_host_name_is_allowed() -> None:
    check(host="Octet.Test:8080", settings={"host": "octet.test"})


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "octet.localhost:80", "127.0.0.1", "127.8.8.8:1", "[::1]", "[::1]:8080"]
)
def test_names_of_this_machine(host: str) -> None:
    assert is_local(host.encode())
    check(host=host)


def test_pages_of_other_sites_cannot_push_or_list_models(tmp_path: Path) -> None:
    with control_plane(tmp_path) as plane:
        refused = plane.client.post(
            "/api/v1/models?name=evil", content=MODEL, headers={"Content-Type": "text/plain", "Origin": ELSEWHERE}
        )
        assert (refused.status_code, refused.json()["code"]) == (403, "cross_site")
        assert plane.client.get("/api/v1/models").json()["models"] == []
        read = plane.client.get("/api/v1/models", headers={"Host": "elsewhere.example"})
        assert (read.status_code, read.json()["code"]) == (403, "foreign_host")
        assert _refusals(plane) == {"cross_site": 1.0, "foreign_host": 1.0}


def test_predictions_from_other_sites_are_refused(tmp_path: Path) -> None:
    with control_plane(tmp_path) as plane:
        answer = plane.client.post("/v2/models/m/infer", content=b"{}", headers={"Origin": ELSEWHERE})
        assert answer.json()["code"] == "cross_site"


def test_requests_with_a_key_are_allowed_from_every_site(tmp_path: Path) -> None:
    key = "octet_admin_" + "a" * 64
    with control_plane(tmp_path, admin_key=key) as plane:
        headers = {"Authorization": f"Bearer {key}", "Origin": ELSEWHERE, "Host": "octet.example"}
        assert plane.client.post("/api/v1/models?name=m", content=MODEL, headers=headers).status_code == 202


def _refusals(plane: ControlPlane) -> dict[str, float]:
    lines = plane.client.get("/metrics").text.splitlines()
    found = (line for line in lines if "requests_not_allowed" in line and not line.startswith("#"))
    return {line.split('"')[1]: float(line.split()[-1]) for line in found if "_total" in line}
