from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from service.cache import OciLayout
from service.core.digest import Digest
from tests.support.compiled import compile_sample

SAMPLES = ("digits_int8.tflite", "digits_uint8.tflite")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Digest]]:
    """A store with the artifacts of both samples, and their digests by file name. Tests must not change the store."""
    root = tmp_path_factory.mktemp("compiled")
    layout = OciLayout(root / "store")
    return layout.root, {file: compile_sample(file, layout, root / file) for file in SAMPLES}


@pytest.fixture
def store(compiled: tuple[Path, dict[str, Digest]], tmp_path: Path) -> OciLayout:
    """A copy of the store. Tests may damage it."""
    shutil.copytree(compiled[0], tmp_path / "store")
    return OciLayout.open(tmp_path / "store")


@pytest.fixture
def artifacts(compiled: tuple[Path, dict[str, Digest]]) -> dict[str, Digest]:
    return compiled[1]
