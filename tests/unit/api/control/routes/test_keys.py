"""Tests of keys in the application: each operation needs its scope, changes are audited, and no secret is revealed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.access.rules import scopes_of
from service.api.app import control_plane as described
from service.api.control.page import reference_routes, routes
from service.core.access.key import Scope
from tests.support.control_plane import MODEL, ControlPlane, control_plane, problem

ADMIN_KEY = "octet_cluster_" + 48 * "x"
METHODS = ("get", "put", "post", "delete", "head")
OPERATIONS = sorted(
    (method.upper(), path)
    for path, item in described().openapi()["paths"].items()
    for method in METHODS
    if method in item
)
OPEN = {"/v2/health/live", "/v2/health/ready"}


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[ControlPlane]:
    """An application that requires keys. Its client sends a key with all scopes."""
    with control_plane(tmp_path, admin_key=ADMIN_KEY) as plane:
        plane.client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        yield plane


def key(plane: ControlPlane, *scopes: str, **limits: Any) -> tuple[str, dict[str, str]]:
    """Creates a key. Returns its id, and the header that sends it."""
    made = plane.client.post("/api/v1/keys", json={"name": "camera 7", "scopes": list(scopes), **limits})
    assert made.status_code == 201, made.text
    return made.json()["id"], {"Authorization": f"Bearer {made.json()['key']}"}


def ask(plane: ControlPlane, method: str, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    """Sends a request with only these headers."""
    positions = {"{name}": "m", "{model}": "m", "{version}": "1", "{id}": "x", "{digest}": "sha256:" + 64 * "0"}
    for name, value in positions.items():
        path = path.replace(name, value)
    params = {"once": "true"} if path == "/api/v1/updates" else {}  # otherwise its response does not end
    request = plane.client.build_request(method, path, headers=headers, params=params)
    if headers is None or "Authorization" not in headers:
        del request.headers["Authorization"]
    return plane.client.send(request)


def test_an_operation_needs_a_key(locked: ControlPlane) -> None:
    for method, path in OPERATIONS:
        if path in OPEN and path.startswith("/v2"):
            continue  # the data plane answers this path
        answer = ask(locked, method, path)
        assert answer.status_code == (200 if path in OPEN else 401), (method, path)
        assert answer.headers.get("www-authenticate") == (None if path in OPEN else "Bearer")
        if path not in OPEN and method != "HEAD":
            assert "Authorization: Bearer" in problem(answer, 401, "unauthorized")["hint"]


def test_an_operation_needs_a_key_with_its_scope(locked: ControlPlane) -> None:
    keys = {scope: key(locked, scope)[1] for scope in Scope}
    seen = set()
    for method, path in OPERATIONS:
        needed = scopes_of(method, path)
        for scope, header in keys.items():
            may = not needed or scope in needed or scope is Scope.ADMIN
            status = ask(locked, method, path, header).status_code
            assert (status == 403) is not may, (method, path, scope, status)
            assert status != 401, (method, path, scope)
            seen.add((needed, may))
    wanted = {scope for scopes, _ in seen for scope in scopes}
    assert wanted == set(Scope)
    assert {may for _, may in seen} == {True, False}


def test_a_key_for_reading_can_neither_change_nor_predict(locked: ControlPlane) -> None:
    header = key(locked, "read")[1]
    looking = ("/api/v1/models", "/api/v1/builds", "/metrics", "/v2", "/v2/models/m")
    assert {ask(locked, "GET", path, header).status_code for path in looking} <= {200, 404}
    for method, path in (
        ("PUT", "/api/v1/models"),
        ("POST", "/v2/models/m/infer"),
        ("POST", "/v2/repository/models/m/load"),
    ):
        problem(ask(locked, method, path, header), 403, "forbidden")
    for path in ("/api/v1/keys", "/api/v1/audit"):
        problem(ask(locked, "GET", path, header), 403, "forbidden")


def test_the_first_key_created_over_the_network_has_the_scope_admin(tmp_path: Path) -> None:
    with control_plane(tmp_path) as plane:
        body = {"name": "me", "scopes": ["predict"]}
        refused = problem(plane.client.post("/api/v1/keys", json=body), 409, "conflict")
        assert "needs the scope admin" in refused["detail"]
        assert plane.client.get("/api/v1/keys").json() == {"keys": []}
        admin = plane.client.post("/api/v1/keys", json={"name": "me", "scopes": ["admin"]}).json()
        plane.client.headers["Authorization"] = f"Bearer {admin['key']}"
        assert plane.client.post("/api/v1/keys", json=body).status_code == 201


def test_the_files_of_the_page_need_no_key(locked: ControlPlane) -> None:
    files = [route.path for route in (*routes(), *reference_routes())]
    assert {"/", "/docs"} < set(files)
    assert {ask(locked, "GET", path).status_code for path in files} == {200}


def test_unknown_paths_need_the_scope_admin(locked: ControlPlane) -> None:
    problem(ask(locked, "GET", "/nothing"), 401, "unauthorized")
    problem(ask(locked, "GET", "/nothing", key(locked, "push", "predict", "metrics")[1]), 403, "forbidden")
    problem(ask(locked, "GET", "/nothing", key(locked, "admin")[1]), 404, "not_found")


def test_the_document_describes_the_scopes_of_operations(locked: ControlPlane) -> None:
    document = ask(locked, "GET", "/api/v1/openapi.json").json()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for method, path in OPERATIONS:
        operation = document["paths"][path][method.lower()]
        documented = {"401", "403", "429"} & operation["responses"].keys()
        assert documented == (set() if path in OPEN else {"401", "403", "429"}), path
        assert operation["security"] == ([] if path in OPEN else [{"key": []}, {}])


def test_the_secret_of_a_key_is_shown_once(locked: ControlPlane, tmp_path: Path) -> None:
    id, header = key(locked, "predict", requests_per_s=5)
    secret = header["Authorization"].split("_")[2]
    (listed,) = locked.client.get("/api/v1/keys").json()["keys"]
    assert (listed["id"], listed["name"], listed["scopes"], listed["requests_per_s"]) == (
        id,
        "camera 7",
        ["predict"],
        5.0,
    )
    assert secret not in locked.client.get("/api/v1/keys").text
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


def test_a_revoked_key_is_refused_at_once(locked: ControlPlane) -> None:
    id, header = key(locked, "push")
    assert ask(locked, "GET", "/api/v1/models", header).status_code == 200
    assert locked.client.delete(f"/api/v1/keys/{id}").json()["revoked_at"]
    assert locked.client.delete(f"/api/v1/keys/{id}").status_code == 200
    problem(ask(locked, "GET", "/api/v1/models", header), 401, "unauthorized")
    problem(locked.client.delete("/api/v1/keys/nobody"), 404, "not_found")


@pytest.mark.parametrize(
    "body",
    [{"name": "a", "scopes": []}, {"name": "a", "scopes": ["root"]}, {"name": "a\nb", "scopes": ["admin"]}, {}],
)
def test_an_invalid_key_is_not_created(locked: ControlPlane, body: dict[str, Any]) -> None:
    problem(locked.client.post("/api/v1/keys", json=body), 400, "invalid_input")
    assert locked.client.get("/api/v1/keys").json() == {"keys": []}


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"requests_per_s": 0.001}, "rate_limited"), ({"requests_per_day": 1}, "quota_exceeded")],
)
def test_too_many_requests_get_a_retry_after_header(locked: ControlPlane, limits: dict[str, Any], code: str) -> None:
    _, header = key(locked, "push", **limits)
    assert ask(locked, "GET", "/api/v1/models", header).status_code == 200
    answer = ask(locked, "GET", "/api/v1/models", header)
    problem(answer, 429, code)
    assert int(answer.headers["retry-after"]) >= 1
    assert f'octet_requests_not_allowed_total{{reason="{code}"}} 1.0' in locked.client.get("/metrics").text


def test_changes_are_in_the_audit_log_with_their_callers(locked: ControlPlane) -> None:
    id, header = key(locked, "push")
    locked.client.headers.update(header)
    version = {"model": "digits", "version": 1}
    pushed = locked.push(MODEL, target="aarch64")
    locked.succeed()
    assert locked.client.post("/api/v1/models/digits/builds", json={"targets": ["aarch64"]}).is_success
    for alias in ("stable", "mine"):
        promotion = {"version": 1, "alias": alias}
        assert locked.client.post("/api/v1/models/digits/promote", json=promotion).is_success
    assert locked.client.delete("/api/v1/models/digits/aliases/mine").is_success
    locked.client.get("/api/v1/models")  # reading is not audited
    locked.client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
    entries = locked.client.get("/api/v1/audit").json()["entries"]
    assert [entry["action"] for entry in entries] == [
        "remove_alias",
        "promote",
        "promote",
        "build",
        "push",
        "create_key",
    ]
    assert [entry["who"] for entry in entries] == [*5 * [id], "cluster"]
    assert entries[4] | version == entries[4]
    assert entries[4]["request_id"] == pushed.headers["x-request-id"]
    assert entries[4]["build"] == pushed.json()["id"]
    assert locked.client.get("/api/v1/audit?limit=1").json()["entries"] == entries[:1]


def test_other_sites_are_refused(locked: ControlPlane) -> None:
    """Without CORS headers in responses, a browser sends no Authorization header, and hides the response from the
    page.
    """
    origin = {"Origin": "https://elsewhere.example", "Access-Control-Request-Headers": "authorization"}
    for method in ("OPTIONS", "GET", "POST"):
        for path in ("/v2", "/v2/models/m/infer", "/api/v1/models"):
            answer = locked.client.request(method, path, headers=origin)
            assert not [name for name in answer.headers if name.startswith("access-control-")]
            assert not (method == "OPTIONS" and answer.is_success)


def test_the_log_contains_no_key(locked: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    _, header = key(locked, "predict")
    wrong = header["Authorization"][:-4] + "beef"
    for shown in (header, {"Authorization": wrong}, {"Authorization": "Basic hunter2"}):
        for path in ("/api/v1/models", "/v2/models/m/infer", "/api/v1/models?name=%00"):
            ask(locked, "POST", path, shown)
    for secret in (header["Authorization"].split("_")[2], wrong.split("_")[2], ADMIN_KEY[14:], "hunter2"):
        assert secret not in caplog.text


def test_a_short_body_is_all_that_is_read_into_memory(plane: ControlPlane) -> None:
    for path in ("/api/v1/models/m/promote", "/api/v1/models/m/builds", "/api/v1/models/m/rollback", "/api/v1/keys"):
        answer = plane.client.post(path, content=b'{"name": "' + 70_000 * b"x" + b'"}')
        problem(answer, 413, "too_large")
