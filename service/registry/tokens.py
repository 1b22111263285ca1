"""Authentication at a registry: it responds with 401 and a challenge, which names a token server.

https://distribution.github.io/distribution/spec/auth/token/, RFC 9110 section 11.6.1
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from service.core.errors import InvalidInput, Unauthorized
from service.registry.credentials import Credentials

MOST_BYTES = 64 << 10  # the longest response of the token server
_PARAMETER = re.compile(r'\s*,?\s*([a-zA-Z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,32768}")

Ask = Callable[[httpx.Request], bytes]
"""Sends a request to the token server, and returns the response body, at most `MOST_BYTES`. Raises `OctetError`."""


@dataclass(frozen=True)
class Challenge:
    """`WWW-Authenticate: Bearer realm="https://…",service="…",scope="…"`, or `Basic`."""

    scheme: str
    parameters: Mapping[str, str]


def parse_challenge(header: str) -> Challenge:
    """Parses the header `WWW-Authenticate`. Raises `InvalidInput` if the scheme is neither Bearer nor Basic."""
    scheme, _, rest = header[:4096].strip().partition(" ")
    if scheme.lower() not in ("bearer", "basic"):
        raise InvalidInput(f"the registry requires the scheme {scheme[:32]!r}, but only Bearer and Basic are supported")
    found = {each[1].lower(): re.sub(r"\\(.)", r"\1", each[2] or each[3] or "") for each in _PARAMETER.finditer(rest)}
    return Challenge(scheme.lower(), found)


def authorization(challenge: Challenge, credentials: Credentials | None, scope: str, ask: Ask) -> str:
    """Returns the value of the header `Authorization` that the challenge requires.

    Args:
        scope: used if the challenge contains no scope.

    Raises:
        Unauthorized: no credentials are configured, or the token server issues no token.
    """
    if challenge.scheme == "basic":
        if credentials is None or credentials.identity_token:
            raise Unauthorized("the registry requires a user and a password", hint="docker login, or OCTET_REGISTRY_…")
        return _basic(credentials)
    token = _token(challenge, credentials, challenge.parameters.get("scope") or scope, ask)
    return f"Bearer {token}"


def _token(challenge: Challenge, credentials: Credentials | None, scope: str, ask: Ask) -> str:
    realm, service = challenge.parameters.get("realm", ""), challenge.parameters.get("service", "")
    try:
        url = httpx.URL(realm)
    except httpx.InvalidURL as error:
        raise Unauthorized("the registry's challenge names no valid token server") from error
    if credentials is not None and credentials.identity_token:
        form = {"grant_type": "refresh_token", "refresh_token": credentials.identity_token, "client_id": "octet"}
        request = httpx.Request("POST", url, data={**form, "service": service, "scope": scope})
    else:
        headers = {"authorization": _basic(credentials)} if credentials else {}
        token_url = url.copy_merge_params({"service": service, "scope": scope})
        request = httpx.Request("GET", token_url, headers=headers)
    try:
        answer = json.loads(ask(request))
        token = answer.get("token") or answer.get("access_token")
    except (ValueError, AttributeError, RecursionError) as error:
        raise Unauthorized("the registry's token server issued no token") from error
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise Unauthorized("the registry's token server issued no valid token")
    return token


def _basic(credentials: Credentials) -> str:
    return "Basic " + base64.b64encode(f"{credentials.user}:{credentials.password}".encode()).decode()
