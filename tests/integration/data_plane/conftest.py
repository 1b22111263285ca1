"""Provides the event loop of the tests, and the sample model, compiled and served by a data plane alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import shared_memory as shm

from service.cache import OciLayout
from tests.support.compiled import compile_sample
from tests.support.plane_process import PlaneProcess, plane
from tests.support.shared_memory import BYTES, VALUES


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


@pytest.fixture(params=[triton_http, triton_grpc], ids=["http", "grpc"])
def triton(request: pytest.FixtureRequest) -> Any:
    """One of Triton's client libraries."""
    return request.param


@pytest.fixture
def key() -> Iterator[str]:
    """The name of shared memory with room for an input and, after it, an output."""
    name = f"octet-{uuid4().hex}"
    handle = shm.create_shared_memory_region("there", f"/{name}", 2 * BYTES)
    shm.set_shared_memory_region(handle, [VALUES])
    yield name
    shm.destroy_shared_memory_region(handle)
