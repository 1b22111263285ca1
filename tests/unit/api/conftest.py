from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane, control_plane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, max_upload_bytes=10_000) as plane:
        yield plane
