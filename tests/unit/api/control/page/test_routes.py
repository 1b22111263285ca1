"""Tests of the responses with the page's files."""

from __future__ import annotations

import re
from importlib.resources import files

from starlette.routing import Route

from service.api.control import page
from tests.support.control_plane import ControlPlane, problem

PATHS = [route.path for route in page.routes()]


def test_every_file_is_served() -> None:
    names = {file.name for file in (files("service.api.control.page") / "assets").iterdir()} - {"index.html"}
    assert set(PATHS) == {"/", *(f"/page/{name}" for name in names)}


def test_a_cached_file_is_not_sent_again(plane: ControlPlane) -> None:
    for path in PATHS:
        first = plane.client.get(path)
        assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache"), path
        again = plane.client.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), path
        other = plane.client.get(path, headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.content) == (200, first.content), path


def test_the_policy_forbids_other_sources_and_text_as_markup(plane: ControlPlane) -> None:
    headers = plane.client.get("/").headers
    assert {plane.client.get(path).headers["content-security-policy"] for path in PATHS} == {
        headers["content-security-policy"]
    }
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert not {name for name, sources in policy.items() if "http" in sources or "unsafe" in sources or "*" in sources}
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_names_only_its_own_files(plane: ControlPlane) -> None:
    for path in PATHS:
        text = plane.client.get(path).text
        named = re.findall(r"""(?:href|src)="(page/[^"]+)"|from "\.(/[^"]+)\"""", text)
        assert {f"/{asset}" if asset else f"/page{module}" for asset, module in named} <= set(PATHS), path
        assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), path


def test_the_page_is_read_only(plane: ControlPlane) -> None:
    response = plane.client.post("/")
    problem(response, 405, "method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert plane.client.head("/").headers["content-type"] == "text/html; charset=utf-8"


def test_the_page_is_not_in_the_openapi_document(plane: ControlPlane) -> None:
    described = set(plane.client.get("/api/v1/openapi.json").json()["paths"])
    assert not described & {route.path for route in page.routes() if isinstance(route, Route)}
