"""Tests of `octet keys` and `octet audit` on the data folder, and of the key that the client sends to a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from service.cli.app import app
from service.cli.client import Client


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OCTET_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("OCTET_SERVER", raising=False)
    monkeypatch.delenv("OCTET_KEY", raising=False)
    return tmp_path


def octet(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def document(*arguments: str) -> Any:
    result = octet(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_key_is_created_shown_listed_and_revoked_without_a_server() -> None:
    made = octet("keys", "create", "camera 7", "--scope", "push", "--scope", "predict", "--requests-per-day", "1000")
    assert made.exit_code == 0
    text = made.stdout.strip()  # only the key, for KEY=$(octet keys create …)
    id = text.split("_")[1]
    (listed,) = document("keys", "list")
    assert (listed["id"], listed["scopes"], listed["requests_per_day"]) == (id, ["predict", "push"], 1000)
    shown = octet("keys", "list").stdout
    assert "camera 7" in shown
    assert "1,000/day" in shown
    assert text.split("_")[2] not in shown
    assert document("keys", "revoke", id)["revoked_at"]
    assert "revoked" in octet("keys", "list").stdout


def test_a_key_has_the_scope_predict_by_default() -> None:
    assert document("keys", "create", "a")["scopes"] == ["predict"]


def test_the_audit_log_is_shown() -> None:
    assert "no changes" in octet("audit").stdout
    id = document("keys", "create", "a")["id"]
    document("keys", "revoke", id)
    assert [entry["action"] for entry in document("audit")] == ["revoke_key", "create_key"]
    shown = octet("audit", "--limit", "1").stdout
    assert "revoke_key" in shown
    assert f"key={id}" in shown
    assert "create_key" not in shown


def test_invalid_arguments_of_keys_are_errors() -> None:
    assert json.loads(octet("keys", "revoke", "nobody", "--json").stdout)["error"]["code"] == "not_found"
    assert octet("keys", "create", "a", "--scope", "root").exit_code == 2
    assert json.loads(octet("keys", "create", "", "--json").stdout)["error"]["code"] == "invalid_input"


def test_a_server_on_a_public_address_needs_a_key() -> None:
    result = octet("serve", "--host", "0.0.0.0", "--port", "0", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert "no API key" in error["message"]
    assert "octet keys create" in error["hint"]


def test_an_invalid_key_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTET_ADMIN_KEY", "hunter2")
    result = octet("serve", "--port", "0", "--json")
    assert result.exit_code == 2
    assert "not an API key" in result.output
    assert "hunter2" not in result.output


def test_the_client_sends_only_its_own_key() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"keys": []})

    for key in ("octet_a", None):
        with Client("http://octet.test", key, transport=httpx.MockTransport(answer)) as client:
            client.keys()
    assert [request.headers.get("authorization") for request in seen] == ["Bearer octet_a", None]
