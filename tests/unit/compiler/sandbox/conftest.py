from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.compiler.sandbox.scratch import scratch_directory


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A scratch folder. This fixture removes it, because children nest directories too deeply for pytest to remove."""
    with scratch_directory(tmp_path) as path:
        yield path
