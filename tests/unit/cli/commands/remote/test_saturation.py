"""Tests of the output of `octet saturation` for a server's response."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.api.app import create_app
from service.cli.app import app
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.live_counts import add_counts, counts_of
from tests.support.uvicorn_thread import listening


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, saturation_share=0.001) as plane:
        plane.push()
        yield plane


@pytest.fixture
def server(plane: ControlPlane) -> Iterator[str]:
    with listening(create_app(plane.services)) as address:
        yield f"http://{address}"


def saturation(server: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["saturation", "digits", *arguments, "--server", server])


def test_a_tensor_that_clips_is_named_and_the_status_is_3(plane: ControlPlane, server: str) -> None:
    add_counts(plane.services, "digits", counts_of(above=25, inside=75), counts_of(), dropped=2)
    result = saturation(server)
    assert result.exit_code == 3
    title, requests, header, conv, relu, note = [line.rstrip() for line in result.stdout.splitlines()]
    assert title == "digits version 1"
    assert requests == "10 requests of 2 days were counted, 2 more were dropped"
    assert header.split() == ["tensor", "calibrated", "live", "clipped", "state"]
    assert conv.split() == ["conv", "-64", "…", "63.5", "-50", "…", "100", "25", "%", "outside"]
    assert relu.split() == ["relu", "0", "…", "25.5", "2.8", "…", "22.8", "0", "%", "within"]
    assert note == "conv: 25 % of the values are clipped"


def test_a_model_within_its_ranges_has_status_0(plane: ControlPlane, server: str) -> None:
    add_counts(plane.services, "digits", counts_of(), counts_of())
    assert saturation(server).exit_code == 0


def test_json_is_the_response(plane: ControlPlane, server: str) -> None:
    add_counts(plane.services, "digits", counts_of(), counts_of())
    response = plane.client.get("/api/v1/models/digits/saturation", params={"days": 7}).json()
    assert json.loads(saturation(server, "--days", "7", "--json").stdout) == response


def test_without_counts_the_reason_is_shown(server: str) -> None:
    result = saturation(server)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "waiting: no request was sampled yet; 1 of 1,000 is"
