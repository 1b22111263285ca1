"""Tests of the forms in which commands take a model: NAME, NAME:VERSION and NAME@ALIAS."""

from __future__ import annotations

import httpx
import pytest
import typer.main

from service.cli.app import app
from service.cli.client import Client
from service.cli.versions import ModelVersion, resolve_model
from service.core.errors import InvalidInput, NotFound


def server() -> Client:
    aliases = [{"name": "stable", "version": 3, "canary": {"version": 4, "percent": 10}, "previous": []}]
    document = {"name": "digits", "versions": [], "aliases": aliases}
    return Client("http://test", transport=httpx.MockTransport(lambda _: httpx.Response(200, json=document)))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("digits", ModelVersion("digits")),
        ("digits:12", ModelVersion("digits", 12)),
        ("digits@stable", ModelVersion("digits", alias="stable")),
        ("acme~digits.v1:2", ModelVersion("acme~digits.v1", 2)),
    ],
)
def test_forms(text: str, parsed: ModelVersion) -> None:
    assert ModelVersion.parse(text) == parsed


@pytest.mark.parametrize("text", ["", "Digits", "digits:", "digits:0", "digits:x", "digits@", "digits@1", "digits:1@a"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a model"):
        ModelVersion.parse(text)


def test_an_alias_is_the_version_that_it_points_to() -> None:
    with server() as client:
        assert resolve_model(client, "digits@stable") == ("digits", 3)
        assert resolve_model(client, "digits:7") == ("digits", 7)
        assert resolve_model(client, "digits") == ("digits", None)


def test_an_unknown_alias_is_an_error_that_names_the_others() -> None:
    with server() as client, pytest.raises(NotFound) as caught:
        resolve_model(client, "digits@candidate")
    assert caught.value.hint == "its aliases are stable"


def test_no_command_has_another_form_for_versions() -> None:
    """`--version` is only the version of Octet."""
    commands = typer.main.get_group(app).commands
    assert [name for name, each in commands.items() for option in each.params if "--version" in option.opts] == []
