"""The tables are those that the migrations produce."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from service.db import Database
from service.db.tables import metadata


def test_the_migrations_lead_to_the_tables_that_the_program_expects(database: Database) -> None:
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
