"""Tests of credentials in docker's configuration, and of challenges of registries."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import InvalidInput
from service.core.settings import Settings
from service.registry.credentials import Credentials, credentials_of


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_config(folder: Path, config: Any) -> None:
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))


def auth(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


def test_no_credentials_are_used_if_none_are_configured(docker: Path) -> None:
    assert credentials_of(Settings(), "ghcr.io") is None
    write_config(docker, {"auths": {"other.example": auth("a:b")}})
    assert credentials_of(Settings(), "ghcr.io") is None


@pytest.mark.parametrize("name", ["ghcr.io", "https://ghcr.io"])
def test_docker_s_configuration_is_read(docker: Path, name: str) -> None:
    write_config(docker, {"auths": {name: auth("me:a:b"), "ghcr.io.example": auth("other:x")}})
    assert credentials_of(Settings(), "ghcr.io") == Credentials("me", "a:b")


def test_an_identity_token_is_read(docker: Path) -> None:
    write_config(docker, {"auths": {"r.example": {"auth": "", "identitytoken": "abc"}}})
    found = credentials_of(Settings(), "r.example")
    assert found is not None
    assert found.identity_token == "abc"


def test_settings_take_precedence_and_the_password_is_not_printed(docker: Path) -> None:
    write_config(docker, {"auths": {"r.example": auth("docker:x")}})
    found = credentials_of(Settings(registry_username="me", registry_password="hush"), "r.example")
    assert found == Credentials("me", "hush")
    assert "hush" not in repr(found)


def test_a_credential_helper_is_called(docker: Path) -> None:
    program = docker / "docker-credential-keys"
    program.write_text(
        '#!/bin/sh\nread server\n[ "$server" = r.example ] || exit 1\necho \'{"Username":"me","Secret":"s"}\'\n'
    )
    program.chmod(0o755)
    write_config(docker, {"credsStore": "keys"})
    assert credentials_of(Settings(), "r.example") == Credentials("me", "s")
    assert credentials_of(Settings(), "other.example") is None


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        {"auths": {"r.example": {"auth": "%"}}},
        {"credsStore": "../../bin/sh"},
        {"credsStore": "no"},
    ],
)
def test_an_invalid_configuration_is_an_error(docker: Path, config: Any) -> None:
    write_config(docker, config)
    with pytest.raises(InvalidInput):
        credentials_of(Settings(), "r.example")
