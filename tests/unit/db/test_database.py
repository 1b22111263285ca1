"""Tests of transactions and migrations, on SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from service.core.digest import digest_of
from service.core.errors import NotFound, StorageFull, Unsupported
from service.core.models.metadata import NOTHING
from service.db import BuildStore, Database, ModelStore
from service.db.migrations import alembic_config
from service.db.tables import builds, is_live, is_unfinished, model_versions
from tests.support.build_inputs import inputs
from tests.support.databases import own_database


def test_the_newest_migration_is_the_one_that_alembic_leads_to(database: Database) -> None:
    with database.read() as connection:
        scripts = ScriptDirectory.from_config(alembic_config(connection))
    assert database.schema()[1] == scripts.get_current_head()


def test_text_is_stored_correctly_in_a_database_without_an_encoding(postgres_server: str) -> None:
    """A PostgreSQL server with the locale C creates such databases."""
    with own_database(postgres_server, "TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'") as url:
        database = Database(url)
        database.migrate()
        ModelStore(database).push("größe", digest_of(b"model"), "tflite", 5)
        assert ModelStore(database).get("größe").format == "tflite"
        database.close()


def test_a_database_reports_its_schema_version(database: Database) -> None:
    current, expected = database.schema()
    assert current == expected
    with database.write() as connection:
        command.downgrade(alembic_config(connection), "base")
    assert database.schema() == (None, expected)
    database.migrate()


def test_migrating_again_changes_nothing(database: Database) -> None:
    ModelStore(database).push("a", digest_of(b"model"), "tflite", 5)
    database.migrate()
    assert ModelStore(database).get("a").number == 1


def test_every_migration_can_be_undone(database: Database) -> None:
    with database.write() as connection:
        command.downgrade(alembic_config(connection), "base")
    with database.read() as connection:
        assert set(sa.inspect(connection).get_table_names()) == {"alembic_version"}
    database.migrate()


def test_versions_from_before_the_metadata_migration_have_none(database: Database) -> None:
    models = ModelStore(database)
    with database.write() as connection:
        command.downgrade(alembic_config(connection), "0004")
        connection.exec_driver_sql(
            "INSERT INTO model_versions (name, number, source, format, size_bytes, created_at) "
            f"VALUES ('a', 1, '{digest_of(b'model')}', 'tflite', 5, '2026-01-01 00:00:00')"
        )
    database.migrate()
    assert models.get("a").metadata == NOTHING


def test_the_database_of_a_newer_release_is_not_changed(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        connection.exec_driver_sql("UPDATE schema_floor SET oldest = '9998'")
    with pytest.raises(Unsupported, match="9999") as caught:
        database.migrate()
    assert "newer release of Octet" in str(caught.value.hint)


def test_a_transaction_that_raises_changes_nothing(database: Database) -> None:
    def half() -> None:
        with database.write() as connection:
            connection.execute(sa.delete(model_versions))
            raise KeyboardInterrupt

    ModelStore(database).push("a", digest_of(b"model"), "tflite", 5)
    with pytest.raises(KeyboardInterrupt):
        half()
    assert ModelStore(database).get("a").number == 1


def test_a_reader_sees_one_state_while_others_write(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'octet.sqlite3'}")
    database.migrate()
    with database.read() as connection:
        count = sa.select(sa.func.count()).select_from(model_versions)
        assert connection.execute(count).scalar_one() == 0
        ModelStore(database).push("a", digest_of(b"model"), "tflite", 5)
        assert connection.execute(count).scalar_one() == 0
    database.close()


def test_sqlite_is_configured_for_durability(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'octet.sqlite3'}")
    database.migrate()
    with database.read() as connection:
        values = {
            pragma: connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()
            for pragma in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    database.close()
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_live_build_is_found_by_its_key_without_a_scan(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'octet.sqlite3'}")
    database.migrate()
    query = sa.select(builds).where(builds.c.key == "sha256:0", is_live)
    with database.read() as connection:
        compiled = str(query.compile(connection, compile_kwargs={"render_postcompile": True}))
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", ("sha256:0",)).all()
    database.close()
    assert "uq_builds_live_key" in str(plan)


def test_the_folder_of_a_new_database_is_created(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'new' / 'folder' / 'octet.sqlite3'}")
    database.migrate()
    database.close()
    assert (tmp_path / "new" / "folder" / "octet.sqlite3").exists()


def test_a_database_that_another_process_creates_is_waited_for(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "octet.sqlite3", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    other.execute("CREATE TABLE half_made (number)")
    timer = threading.Timer(0.1, lambda: other.execute("ROLLBACK"))
    timer.start()
    database = Database(f"sqlite:///{tmp_path / 'octet.sqlite3'}")
    database.migrate()
    timer.join()
    other.close()
    with pytest.raises(NotFound):
        ModelStore(database).get("a")
    database.close()


def test_a_full_disk_has_its_own_error(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'octet.sqlite3'}")
    database.migrate()

    def write_more_than_there_is_room_for() -> None:
        with database.write() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            connection.exec_driver_sql("CREATE TABLE large (data BLOB)")

    with pytest.raises(StorageFull) as caught:
        write_more_than_there_is_room_for()
    assert isinstance(caught.value.__cause__, sa.exc.OperationalError)
    assert isinstance(caught.value.__cause__.orig, sqlite3.OperationalError)
    database.close()


def test_the_next_build_is_found_without_a_sort_on_postgresql(postgres_schema: str) -> None:
    """The order of claims is an index, so finding the next build does not depend on the number of waiting builds."""
    database = Database(postgres_schema)
    database.migrate()
    store, some = BuildStore(database), [inputs(source=str(number)) for number in range(300)]
    for each in some:
        store.submit(each, "a", 1)
    query = sa.select(builds.c.sequence).where(is_unfinished).order_by(builds.c.background, builds.c.sequence).limit(1)
    with database.write() as connection:
        connection.exec_driver_sql("ANALYZE builds")
        compiled = str(query.compile(connection, compile_kwargs={"render_postcompile": True, "literal_binds": True}))
        plan = connection.exec_driver_sql(f"EXPLAIN {compiled}").all()
    database.close()
    assert "ix_builds_claim_order" in str(plan)


@pytest.mark.parametrize("revision", ["0006", "0007", "0008", "0010"])
def test_an_older_release_can_write_to_the_newest_schema(database: Database, revision: str) -> None:
    """New columns have defaults, and all columns that the older release uses exist with the same types."""
    head = database.schema()[1]
    with database.write() as connection:
        command.downgrade(alembic_config(connection), revision)
    old = sa.MetaData()
    with database.read() as connection:
        old.reflect(connection)
    with database.write() as connection:
        command.upgrade(alembic_config(connection), head)
    tables = [table for table in old.sorted_tables if table.name not in ("alembic_version", "schema_floor")]
    assert {"builds", "model_versions", "model_aliases", "workers"} <= {table.name for table in tables}
    with database.write() as connection:
        rows = {table: {column.name: _value_for(column) for column in table.columns} for table in tables}
        for table, row in rows.items():
            connection.execute(sa.insert(table).values(**row))
            assert connection.execute(sa.select(table)).one()._mapping == row


def _value_for(column: sa.Column[object]) -> object:
    """Returns a value of the column's type that is not null. All numbers are equal, so that foreign keys are valid."""
    if isinstance(column.type, sa.DateTime):
        return datetime(2026, 1, 1, tzinfo=UTC if getattr(column.type, "timezone", False) else None)
    if isinstance(column.type, sa.Date):
        return date(2026, 1, 1)
    if isinstance(column.type, sa.JSON):
        return {"a": 1}
    kinds: dict[type, object] = {int: 1, float: 0.5, bool: False}
    return kinds.get(column.type.python_type, "queued")


def test_compatible_tables_of_a_newer_release_are_used(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    database.migrate()
    assert ModelStore(database).push("a", digest_of(b"model"), "tflite", 5).number == 1
