"""Fixtures: servers with keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.api.access import Access
from service.core.settings import Settings
from tests.support.api_keys import Make
from tests.support.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(tmp_path: Path, clock: ManualClock) -> Make:
    return lambda **settings: Access(Settings(data_dir=tmp_path, **settings), clock)
