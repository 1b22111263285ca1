from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import Served, serving

LEASE = {"lease_s": 3, "heartbeat_s": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    """One server for all tests of a module. The model `digits` has been built and is ready."""
    with serving(folder, max_upload_bytes=1_000_000, **LEASE) as served:
        build = served.ended(served.push()["id"])
        assert build["state"] == "succeeded", build
        yield served
        assert served.stop() == 0
