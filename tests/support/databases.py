"""Fixtures of empty databases on each engine, for a `conftest.py` to import."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.db import Database
from tests.support import postgres
from tests.support.build_caches import run_folder

_SQLITE = "sqlite:///"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    reason = postgres.why_not()
    if reason:
        pytest.skip(f"NOT TESTED ON POSTGRESQL: {reason}")
    with postgres.server() as server:
        yield server


@pytest.fixture
def postgres_schema(postgres_server: str) -> Iterator[str]:
    """The URL of an empty schema. It serves as a separate database, and takes a tenth of the time to create."""
    schema = f"octet_{uuid.uuid4().hex}"
    admin = sa.create_engine(postgres.database_url(postgres_server).replace("://", "+psycopg://"))
    with admin.begin() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    yield postgres.database_url(postgres_server, schema)
    with admin.begin() as connection:
        connection.execute(sa.schema.DropSchema(schema, cascade=True))
    admin.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database. A test that uses it runs on both engines."""
    if request.param == "sqlite":
        return f"{_SQLITE}{tmp_path / 'octet.sqlite3'}"
    url: str = request.getfixturevalue("postgres_schema")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    if database_url.startswith(_SQLITE):
        place_database(Path(database_url.removeprefix(_SQLITE)))
    database = Database(database_url)
    database.migrate()
    yield database
    database.close()


def place_database(path: Path) -> None:
    """Copies an SQLite database whose tables have the newest version and no rows. All migrations together take a third
    of a second of processor time, so each test run applies them once.
    """
    migrated = run_folder() / "migrated.sqlite3"
    if not migrated.exists():
        partial = migrated.with_name(f"{uuid.uuid4().hex}.sqlite3")
        database = Database(f"{_SQLITE}{partial}")
        database.migrate()
        database.close()
        partial.rename(migrated)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(migrated, path)


@contextmanager
def own_database(server: str, options: str = "") -> Iterator[str]:
    """Creates a separate database with `options`, and yields its URL. It is for tests of operations on a whole
    database, such as a dump.
    """
    name = f"octet_{uuid.uuid4().hex}"
    admin = sa.create_engine(postgres.database_url(server).replace("://", "+psycopg://"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} {options}")
    yield postgres.database_url(server).replace("/postgres?", f"/{name}?").partition("&options")[0]
    with admin.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    admin.dispose()
