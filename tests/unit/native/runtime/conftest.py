"""Fixtures: compiled functions, artifacts that contain them, and the runtime's threads, each compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.core.digest import canonical_json
from tests.support.emulated_gpus import Files
from tests.support.runtime_threads import RuntimeThreads, compile_threads
from tests.support.small_artifact import CONSTANTS, FUNCTIONS, SIMPLE, compiled, write_layout
from tools.cuda_emulator import emulated_driver


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of `FUNCTIONS`."""
    return compiled(FUNCTIONS, folder=tmp_path_factory.mktemp("code"))


@pytest.fixture
def constants(tmp_path: Path) -> Path:
    path = tmp_path / "constants"
    path.write_bytes(CONSTANTS.tobytes())
    return path


@pytest.fixture
def folder(tmp_path: Path, code: Path) -> Path:
    """The artifact `SIMPLE` in the format that the compiler writes."""
    path = tmp_path / "model.octet"
    write_layout(path, canonical_json(SIMPLE), code, CONSTANTS.tobytes())
    return path


@pytest.fixture(scope="session")
def threads(tmp_path_factory: pytest.TempPathFactory) -> RuntimeThreads:
    return compile_threads(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs a function in a new thread, always the same one, whose affinity mask may be changed."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(function).result(timeout=60)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """An artifact for emulated GPUs, and the driver and the kernels that emulate them."""
    folder = tmp_path_factory.mktemp("cards")
    (folder / "constants").write_bytes(CONSTANTS.tobytes())
    return Files(
        emulated_driver.build_driver(folder / "driver"),
        folder / "kernels",
        emulated_driver.build_library(folder / "library", folder / "kernels"),
        folder / "constants",
    )
