"""An empty database on each engine, as fixtures for a `conftest.py` to import."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.db import Database
from tests.support import postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    reason = postgres.why_not()
    if reason:
        pytest.skip(f"NOT TESTED ON POSTGRESQL: {reason}")
    with postgres.server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A test that takes this runs on both engines."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'octet.sqlite3'}"
        return
    server = request.getfixturevalue("postgres_server")
    schema = f"octet_{uuid.uuid4().hex}"  # as good as a database of its own, and made ten times as fast
    admin = sa.create_engine(postgres.database_url(server))
    with admin.begin() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    yield postgres.database_url(server, schema)
    with admin.begin() as connection:
        connection.execute(sa.schema.DropSchema(schema, cascade=True))
    admin.dispose()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    database.migrate()
    yield database
    database.close()
