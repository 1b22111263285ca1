"""Tests of the responses with the page's files."""

from __future__ import annotations

import posixpath
import re
from importlib.resources import files
from pathlib import Path

from starlette.routing import Route

from service.api.control import page
from tests.support.control_plane import ControlPlane, problem

PATHS = [route.path for route in page.routes()]


def test_every_file_is_served() -> None:
    folder = Path(str(files("service.api.control.page"))) / "assets"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"index.html"}
    assert set(PATHS) == {"/", *(f"/page/{name}" for name in names)}


def test_files_are_compressed_for_clients_that_read_gzip(plane: ControlPlane) -> None:
    for encoding, sent in (("gzip", "gzip"), ("br, gzip;q=0.5", "gzip"), ("gzip;q=0", None), ("identity", None)):
        response = plane.client.get("/page/main.js", headers={"Accept-Encoding": encoding})
        assert response.headers.get("content-encoding") == sent, encoding
        assert response.headers["vary"] == "accept-encoding"
        assert response.text.startswith("// The page")


def test_the_page_names_the_modules_that_it_starts_with(plane: ControlPlane) -> None:
    text = plane.client.get("/").text
    preloaded = re.findall(r'modulepreload" href="(page/[^"]+)"', text)
    assert {"page/vendor/preact.js", "page/app/shell.js", "page/models/list.js"} <= set(preloaded)
    assert not {"page/vendor/uplot.js", "page/vendor/dagre.js"} & set(preloaded)


def test_the_page_starts_with_few_bytes(plane: ControlPlane) -> None:
    """On a line of 400 kbit/s, this many bytes take a second."""
    preloaded = re.findall(r'href="(page/[^"]+)"', plane.client.get("/").text)
    sizes = {}
    for path in ("/", "/page/main.js", *(f"/{asset}" for asset in preloaded)):
        response = plane.client.get(path, headers={"Accept-Encoding": "gzip"})
        sizes[path] = int(response.headers["content-length"]) + len(str(response.headers.raw))
    assert sum(sizes.values()) < 50_000, sizes


def test_every_library_has_its_version_and_licence(plane: ControlPlane) -> None:
    libraries = plane.client.get("/page/vendor/versions.json").json()
    licences = plane.client.get("/page/vendor/licences.txt").text
    assert {each["package"] for each in libraries} == {"preact", "htm", "uplot", "@dagrejs/dagre"}
    assert all(f"{each['package']} {each['version']}" in licences for each in libraries)


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
    policies = {path: plane.client.get(path).headers.get("content-security-policy") for path in PATHS}
    documents = {path: policy for path, policy in policies.items() if policy is not None}
    assert documents == dict.fromkeys(("/", "/page/icon.svg"), headers["content-security-policy"])
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert not {name for name, sources in policy.items() if "http" in sources or "unsafe" in sources or "*" in sources}
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_names_only_its_own_files(plane: ControlPlane) -> None:
    for path in PATHS:
        text = plane.client.get(path).text
        named = re.findall(r'(?:href|src)="(page/[^"]+)"', text)
        modules = re.findall(r"""(?:from ?|import\()["'](\.[^"']+)["']""", text)
        folder = posixpath.dirname(path)
        assert {f"/{asset}" for asset in named} <= set(PATHS), path
        assert {posixpath.normpath(f"{folder}/{module}") for module in modules} <= set(PATHS), path
        if not path.startswith("/page/vendor/"):
            assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), path


def test_the_page_is_read_only(plane: ControlPlane) -> None:
    response = plane.client.post("/")
    problem(response, 405, "method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert plane.client.head("/").headers["content-type"] == "text/html; charset=utf-8"


def test_the_page_is_not_in_the_openapi_document(plane: ControlPlane) -> None:
    described = set(plane.client.get("/api/v1/openapi.json").json()["paths"])
    assert not described & {route.path for route in page.routes() if isinstance(route, Route)}
