"""Provides the event loop of the tests, and the sample model, compiled and served by a data plane alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cache import OciLayout
from tests.support.compiled import compile_sample
from tests.support.plane_process import PlaneProcess, plane


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plane")
    compile_sample("digits_uint8.tflite", OciLayout(folder / "digits"), folder / "scratch")
    return folder / "digits"


@pytest.fixture(scope="session")
def served(digits: Path) -> Iterator[PlaneProcess]:
    with plane([f"digits={digits}"]) as process:
        yield process
