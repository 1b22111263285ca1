"""Tests that shells complete names of models, with a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.app import create_app
from tests.support.control_plane import control_plane
from tests.support.uvicorn_thread import listening


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the model `digits`, whose alias `stable` is version 1."""
    folder: Path = tmp_path_factory.mktemp("plane")
    with control_plane(folder) as plane, listening(create_app(plane.services)) as address:
        plane.push()
        plane.services.aliases.promote("digits", "stable", 1, 100)
        yield f"http://{address}"


def completions(line: str, server: str) -> list[str]:
    """Returns what bash offers at the end of `line`."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_OCTET_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", "from service.cli import main; main()"],
        env={**os.environ, **words, "OCTET_SERVER": server},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("octet predict di", ["digits"]),
        ("octet rm x", []),
        ("octet promote digits:", ["digits:1"]),
        ("octet models digits@", ["digits@stable"]),
        ("octet builds --model d", ["digits"]),
    ],
)
def test_models_are_offered(line: str, offered: list[str], server: str) -> None:
    assert completions(line, server) == offered


def test_without_a_server_nothing_is_written_into_the_line() -> None:
    assert completions("octet predict di", "http://127.0.0.1:1") == []


def test_options_are_offered_without_a_server() -> None:
    assert completions("octet push --accept", "http://127.0.0.1:1") == ["--accept-differences"]
