"""Tokens of registries, for a password or an identity token."""

from __future__ import annotations

import base64

import httpx
import pytest

from service.core.errors import InvalidInput, Unauthorized
from service.registry.credentials import Credentials
from service.registry.tokens import Challenge, authorization, parse_challenge


def test_a_challenge_is_parsed() -> None:
    header = 'Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push"'
    assert parse_challenge(header) == Challenge(
        "bearer",
        {"realm": "https://auth.example/token", "service": "r.example", "scope": "repository:a/b:pull,push"},
    )
    assert parse_challenge('basic realm="x"').scheme == "basic"
    with pytest.raises(InvalidInput):
        parse_challenge("Negotiate")


CHALLENGE = Challenge("bearer", {"realm": "https://auth.example/token?a=b", "service": "r.example"})


def test_a_token_is_requested_with_the_password() -> None:
    requests: list[httpx.Request] = []

    def ask(request: httpx.Request) -> bytes:
        requests.append(request)
        return b'{"token": "abc.def"}'

    assert authorization(CHALLENGE, Credentials("me", "pw"), "repository:a:pull", ask) == "Bearer abc.def"
    (request,) = requests
    assert dict(request.url.params) == {"a": "b", "service": "r.example", "scope": "repository:a:pull"}
    assert request.headers["authorization"] == "Basic " + base64.b64encode(b"me:pw").decode()


def test_an_identity_token_is_exchanged_for_a_token() -> None:
    requests: list[httpx.Request] = []

    def ask(request: httpx.Request) -> bytes:
        requests.append(request)
        return b'{"access_token": "t"}'

    assert authorization(CHALLENGE, Credentials("", "", "idt"), "s", ask) == "Bearer t"
    assert (requests[0].method, b"refresh_token=idt" in requests[0].content) == ("POST", True)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"token": 1}', b'{"token": "a\\r\\nb: c"}', b'{"token": ""}'])
def test_an_invalid_token_is_rejected(answer: bytes) -> None:
    with pytest.raises(Unauthorized):
        authorization(CHALLENGE, None, "s", lambda request: answer)


def test_a_missing_password_is_an_error() -> None:
    with pytest.raises(Unauthorized):
        authorization(Challenge("basic", {}), None, "s", lambda request: b"")
