"""Who asks a registry: by the settings, or as `docker login` has written it down.

https://github.com/docker/cli/blob/v27.0.0/cli/config/configfile/file.go, https://github.com/docker/docker-credential-helpers
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
    """A user and a password; or, with `identity_token`, a token that stands for both at the server of tokens."""

    user: str
    password: str
    identity_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"  # logs show no password


def credentials_of(settings: Settings, host: str) -> Credentials | None:
    """What to show the registry `host`; None where nothing is known, and it is asked as anybody may.

    Raises:
        InvalidInput: docker's configuration, or what its helper says, cannot be read.
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
        return _found(json.loads(data), host)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{path} is no configuration of docker's: {error}") from error


def _found(config: Mapping[str, Any], host: str) -> Credentials | None:
    names = [host, f"https://{host}", f"http://{host}"]
    if host in ("docker.io", "index.docker.io", "registry-1.docker.io"):
        names.append(_DOCKER_HUB)
    helper = config.get("credHelpers", {}).get(host) or config.get("credsStore")
    if helper:
        return next(filter(None, (_helped(str(helper), name) for name in names)), None)
    entries = config.get("auths", {})
    entry = next((entries[name] for name in names if name in entries), None)
    return None if entry is None else _stored(entry)


def _stored(entry: Mapping[str, Any]) -> Credentials | None:
    token = entry.get("identitytoken") or None
    user, password = entry.get("username", ""), entry.get("password", "")
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ValueError("the member auth is not base64 of USER:PASSWORD") from error
    return Credentials(str(user), str(password).rstrip("\0"), token) if user or token else None


def _helped(helper: str, name: str) -> Credentials | None:
    """What docker's helper program keeps, in a keychain for instance."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", helper):
        raise ValueError(f"{helper!r} is no name of a helper")
    program = f"docker-credential-{helper}"
    try:
        asked = subprocess.run(
            [program, "get"], input=name.encode(), capture_output=True, timeout=_HELPER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"{program} does not say the credentials: {error}") from error
    if asked.returncode != 0:  # it knows none; so it says on its standard output
        return None
    said = json.loads(asked.stdout[:_MOST_BYTES])
    user, secret = str(said["Username"]), str(said["Secret"])
    return Credentials("", "", secret) if user == "<token>" else Credentials(user, secret)
