"""Tests of `octet models` and `octet builds` on a server's models and builds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.api.app import create_app
from service.cli.app import app
from service.core.errors import UnsupportedOperator
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.uvicorn_thread import listening


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path) as plane:
        yield plane


@pytest.fixture
def server(plane: ControlPlane) -> Iterator[str]:
    with listening(create_app(plane.services)) as address:
        yield f"http://{address}"


@pytest.fixture
def build(plane: ControlPlane) -> str:
    """The id of a waiting build."""
    plane.push()
    ((waiting,), _) = plane.services.builds.list()
    return waiting.id


def builds(server: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["builds", *arguments, "--server", server])


def test_a_model_is_shown_with_the_address_of_its_page(server: str, build: str) -> None:
    shown = CliRunner().invoke(app, ["models", "digits:1", "--server", server]).stdout
    assert shown.splitlines()[-1] == f"{server}/#/models/digits/1"


def test_short_ids_are_shown_and_accepted(server: str, build: str) -> None:
    shown = builds(server).stdout
    assert build[:8] in shown
    assert build not in shown
    assert json.loads(builds(server, build[:8], "--json").stdout)["id"] == build


def test_builds_of_one_version_can_be_distinguished(plane: ControlPlane, server: str) -> None:
    plane.push(batch="1,8")
    shown = [line for line in builds(server).stdout.splitlines() if ":1" in line]
    assert sorted("batch 8" in line for line in shown) == [False, True]


def test_a_queued_build_is_canceled(server: str, build: str) -> None:
    result = builds(server, build[:8], "--cancel", "--json")
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (0, "canceled")
    assert builds(server, build[:8], "--cancel").exit_code == 0  # canceling it again succeeds, too


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_canceling_an_ended_build_reports_that_it_has_ended(
    plane: ControlPlane, server: str, build: str, state: str
) -> None:
    plane.succeed() if state == "succeeded" else plane.fail(UnsupportedOperator())
    result = builds(server, build[:8], "--cancel")
    assert result.exit_code == 1
    assert f"build {build[:8]} ended before it could be canceled; its state is {state}" in result.stderr
    assert json.loads(builds(server, build, "--cancel", "--json").stdout)["error"]["code"] == "conflict"
