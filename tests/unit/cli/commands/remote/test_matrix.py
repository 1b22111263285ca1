"""Tests of the output of `octet matrix` for a server's response."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.api.app import create_app
from service.cli.app import app
from service.core.artifacts.artifact import Report
from service.core.digest import canonical_json
from service.core.errors import UnsupportedOperator
from tests.support.control_plane import HOST_TARGET, ControlPlane, control_plane
from tests.support.uvicorn_thread import listening


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, pool_prices={"host": 3.6}, instances=1) as plane:
        yield plane


@pytest.fixture
def server(plane: ControlPlane) -> Iterator[str]:
    with listening(create_app(plane.services)) as address:
        yield f"http://{address}"


def matrix(server: str, *arguments: str, model: str = "digits") -> Result:
    return CliRunner().invoke(app, ["matrix", model, *arguments, "--server", server])


def test_a_row_shows_the_checks_and_the_measurements(plane: ControlPlane, server: str) -> None:
    plane.push()
    artifact = plane.succeed()
    numerics = {"verified": True, "outcome": "equal", "summary": "checked against a runtime"}
    profile = {"machine": "a CPU", "threads": 1, "model_seconds": 0.25}
    plane.services.layout.attach(artifact, Report.NUMERICS, canonical_json(numerics))
    plane.services.layout.attach(artifact, Report.PROFILE, canonical_json(profile))
    title, header, row, *notes = [line.rstrip() for line in matrix(server).stdout.splitlines()]
    assert title == "digits version 1"
    columns = (
        "pool",
        "target",
        "state",
        "numerics",
        "checked",
        "workers",
        "loaded",
        "p50",
        "p99",
        "per second",
        "of peak",
        "memory",
    )
    assert header.split() == " ".join([*columns, "cost per million"]).split()
    # 3.6 / 3600 * 0.25 * 10^6: one worker that computes one call at a time
    assert row.split() == ["host", HOST_TARGET, "ready", "litert-reference", "equal", "1", "0", "250", "ms", "250"]
    assert notes == [f"{HOST_TARGET}  checked against a runtime", f"{HOST_TARGET}  measured on a CPU, 1 thread"]


def test_a_failure_is_named_with_its_build(plane: ControlPlane, server: str) -> None:
    plane.push()
    plane.fail(UnsupportedOperator())
    ((build,), _) = plane.services.builds.list()
    assert f"{HOST_TARGET}  unsupported_operator: octet builds {build.id[:8]}" in matrix(server).stdout


def test_json_is_the_servers_response(plane: ControlPlane, server: str) -> None:
    plane.push()
    result = matrix(server, "--json", model="digits:1")
    assert json.loads(result.stdout) == plane.client.get("/api/v1/models/digits/matrix").json()


def test_a_missing_version(plane: ControlPlane, server: str) -> None:
    plane.push()
    result = matrix(server, model="digits:2")
    assert result.exit_code == 1
    assert "no version 2" in result.stderr
