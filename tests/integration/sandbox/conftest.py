from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.compiler.sandbox.scratch import scratch_directory


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Removed by us: what children nest in it is too deep for pytest to remove."""
    with scratch_directory(tmp_path) as path:
        yield path
