"""Fixtures: the programs of `tests/native`, built once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.native import built_program, echo_server


@pytest.fixture(scope="session")
def echo_program() -> Path:
    return built_program("echo_server")


@pytest.fixture(scope="session")
def port(echo_program: Path) -> Iterator[int]:
    """The port of a running echo server with its usual limits."""
    with echo_server(echo_program) as listening:
        yield listening


@pytest.fixture(scope="session")
def slow_port(echo_program: Path) -> Iterator[int]:
    """The port of an echo server that reads 3 bytes at a time and writes 5."""
    with echo_server(echo_program, read_bytes=3, write_bytes=5) as listening:
        yield listening
