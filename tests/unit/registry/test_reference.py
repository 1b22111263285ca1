"""Tests of the syntax in which references name content of a registry."""

from __future__ import annotations

import pytest

from service.core.errors import InvalidInput
from service.registry import parse_reference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("oci://ghcr.io/o/digits:v1", ("ghcr.io", "o/digits", "v1", None)),
        ("oci://localhost:5000/a", ("localhost:5000", "a", "latest", None)),
        ("oci://[::1]:5000/a/b/c", ("[::1]:5000", "a/b/c", "latest", None)),
        (f"oci://r.example/a__b.c-d@{DIGEST}", ("r.example", "a__b.c-d", None, DIGEST)),
        (f"oci://r.example/a:T_1.2-3@{DIGEST}", ("r.example", "a", "T_1.2-3", DIGEST)),
    ],
)
def test_a_reference_is_parsed_and_printed(text: str, parts: tuple[str, str, str | None, str | None]) -> None:
    found = parse_reference(text)
    assert (found.host, found.repository, found.tag, found.digest) == parts
    assert parse_reference(str(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "ghcr.io/a",
        "oci://a",
        "oci:///a",
        "oci://user@host/a",
        "oci://host/A",
        "oci://host/../a",
        "oci://host/a//b",
        "oci://host/a:",
        "oci://host/a:b:c",
        "oci://host/a?x=1",
        "oci://host/a#b",
        "oci://host/a\n",
        "oci://ho st/a",
        "oci://host:port/a",
        "oci://host/a@sha256:abc",
        "oci://host/a@md5:" + "a" * 32,
        "oci://host/" + "a" * 600,
    ],
)
def test_other_text_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_reference(text)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost:5000", True),
        ("127.0.0.1", True),
        ("127.9.9.9:80", True),
        ("[::1]:5000", True),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("10.0.0.1:5000", False),
    ],
)
def test_plain_http_is_used_only_on_this_machine(host: str, is_loopback: bool) -> None:
    assert parse_reference(f"oci://{host}/a").is_loopback is is_loopback
