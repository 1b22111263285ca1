from __future__ import annotations

import pytest

from service.db import BuildStore, Database, ModelStore
from tests.support.databases import database, database_url, postgres_schema, postgres_server
from tests.support.manual_clock import ManualClock

__all__ = ["database", "database_url", "postgres_schema", "postgres_server"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def builds(database: Database, clock: ManualClock) -> BuildStore:
    return BuildStore(database, clock, max_attempts=3)


@pytest.fixture
def models(database: Database, clock: ManualClock) -> ModelStore:
    return ModelStore(database, clock)
