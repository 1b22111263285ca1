"""The credentials for a registry: from the settings, or as stored by `docker login`.

https://github.com/docker/cli/blob/v27.0.0/cli/config/configfile/file.go,
https://github.com/docker/docker-credential-helpers
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.core.errors import InvalidInput
from service.core.settings import Settings

_DOCKER_HUB = "https://index.docker.io/v1/"
_HELPER_S = 30.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Credentials:
    """A user and a password; or an `identity_token`, which replaces both at the token server."""

    user: str
    password: str
    identity_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"  # logs show no password


def credentials_of(settings: Settings, host: str) -> Credentials | None:
    """Returns the credentials for the registry `host`; None if there are none, so that requests are anonymous.

    Raises:
        InvalidInput: docker's configuration, or the output of its helper, cannot be read.
    """
    if settings.registry_username is not None and settings.registry_password is not None:
        return Credentials(settings.registry_username, settings.registry_password.get_secret_value())
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    path = folder / "config.json"
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    try:
        return _find(json.loads(data), host)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a valid docker configuration: {error}") from error


def _find(config: Mapping[str, Any], host: str) -> Credentials | None:
    names = [host, f"https://{host}", f"http://{host}"]
    if host in ("docker.io", "index.docker.io", "registry-1.docker.io"):
        names.append(_DOCKER_HUB)
    helper = config.get("credHelpers", {}).get(host) or config.get("credsStore")
    if helper:
        return next(filter(None, (_from_helper(str(helper), name) for name in names)), None)
    entries = config.get("auths", {})
    entry = next((entries[name] for name in names if name in entries), None)
    return None if entry is None else _from_config(entry)


def _from_config(entry: Mapping[str, Any]) -> Credentials | None:
    token = entry.get("identitytoken") or None
    user, password = entry.get("username", ""), entry.get("password", "")
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ValueError("the member auth is not base64 of USER:PASSWORD") from error
    return Credentials(str(user), str(password).rstrip("\0"), token) if user or token else None


def _from_helper(helper: str, name: str) -> Credentials | None:
    """Returns the credentials that docker's helper program stores, for instance in a keychain."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", helper):
        raise ValueError(f"{helper!r} is not a valid name of a credential helper")
    program = f"docker-credential-{helper}"
    try:
        process = subprocess.run(
            [program, "get"], input=name.encode(), capture_output=True, timeout=_HELPER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"{program} cannot be run: {error}") from error
    if process.returncode != 0:  # the helper has no credentials, and reports this on its standard output
        return None
    output = json.loads(process.stdout[:_MOST_BYTES])
    user, secret = str(output["Username"]), str(output["Secret"])
    return Credentials("", "", secret) if user == "<token>" else Credentials(user, secret)
