"""Options that several commands share."""

from __future__ import annotations

import pytest

from service.cli.configuration import local_url, server_flag


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("fd00::1", "http://[fd00::1]:80"),
        ("octet.local", "http://octet.local:80"),
    ],
)
def test_the_url_of_a_local_server_is_one_to_connect_to(host: str, url: str) -> None:
    assert local_url(host, 80) == url


def test_a_suggested_command_names_a_server_that_is_not_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTET_SERVER", "http://a")
    assert server_flag("http://b") == " --server http://b"
    assert server_flag("http://a") == server_flag(None) == ""
