"""Tests that a damaged database is rebuilt from the store, and a damaged index of the store from the database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from service.cache import OciLayout
from service.core.errors import CorruptBlob, DatabaseDamaged, DatabaseLost, DataUnusable, OctetError, Unsupported
from service.core.settings import Settings
from service.db import AliasStore, BuildStore, Database, ModelStore
from service.workers.catalog import record_version, synchronize
from service.workers.repair import database_damage, repair

MODEL = b"a model"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of a data directory with three versions of a model, whose server has ended cleanly."""
    settings = Settings(data_dir=tmp_path)
    database, layout = Database.of(settings), OciLayout(settings.store_dir)
    database.migrate()
    models = ModelStore(database)
    for number in range(3):
        data = MODEL + bytes([number])
        record_version(layout, models, models.push("digits", layout.blobs.put_bytes(data), "tflite", len(data)))
    synchronize(layout, BuildStore(database), models, AliasStore(database))
    database.close()
    return settings


def versions(settings: Settings) -> list[int]:
    database = Database.of(settings)
    try:
        database.migrate()
        return sorted(each.number for each in ModelStore(database).all_versions())
    finally:
        database.close()


def cut_in_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def damage_header(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"not a database, by its beginning")


def damage_pages(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(os.urandom(file.stat().st_size - 8192))


def put_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "something").touch()


DAMAGES = [cut_in_half, damage_header, damage_pages, put_a_folder]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_recognized(settings: Settings, damage: Callable[[Path], None]) -> None:
    damage(settings.database_file)
    assert "is damaged" in database_damage(settings)
    with pytest.raises(DatabaseDamaged, match=r"octet\.sqlite3 is damaged: ") as raised:
        versions(settings)
    assert f"octet doctor --repair --data-dir {settings.data_dir}" in (raised.value.hint or "")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_rebuilt_and_moved_aside(settings: Settings, damage: Callable[[Path], None]) -> None:
    damage(settings.database_file)
    done = repair(settings)
    assert "restored 3 model versions" in done[-1]
    assert versions(settings) == [1, 2, 3]
    (aside,) = settings.data_dir.glob("octet.sqlite3.damaged-*")
    assert f"moved octet.sqlite3 to {aside.name}" in done
    assert repair(settings) == []


def test_nothing_is_done_without_damage(settings: Settings) -> None:
    before = settings.database_file.read_bytes()
    assert (database_damage(settings), repair(settings)) == ("", [])
    assert settings.database_file.read_bytes() == before


def test_a_locked_database_is_not_damaged(settings: Settings) -> None:
    with sqlite3.connect(settings.database_file) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert repair(settings) == []


def test_a_database_of_a_newer_version_is_not_damaged(settings: Settings) -> None:
    with sqlite3.connect(settings.database_file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE schema_floor SET oldest = '9999'")
    connection.close()
    assert repair(settings) == []
    with pytest.raises(Unsupported, match="cannot be migrated to this release"):
        versions(settings)


def test_damage_while_the_database_is_in_use_is_detected(settings: Settings) -> None:
    database = Database.of(settings)
    database.migrate()
    with database.read():
        pass
    damage_header(settings.database_file)
    database.close()  # closes all connections, so that none has pages of the file cached
    with pytest.raises((DatabaseDamaged, DatabaseLost)):
        ModelStore(database).all_versions()
    database.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"manifests": 1}', None])
@pytest.mark.parametrize("name", ["index.json", "oci-layout"])
def test_a_damaged_index_is_rebuilt_from_the_database(settings: Settings, name: str, content: bytes | None) -> None:
    file = settings.store_dir / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises((OctetError, FileNotFoundError)):
        OciLayout.open(settings.store_dir)
    done = repair(settings)
    assert "listed the blobs of the store again" in done[-1]
    settings.database_file.unlink()  # the index contains all that the tables need
    assert "restored" not in repair(settings)
    layout, database = OciLayout.open(settings.store_dir), Database.of(settings)
    database.migrate()
    assert synchronize(layout, BuildStore(database), ModelStore(database), AliasStore(database)).versions == 3
    database.close()


def test_nothing_is_touched_if_both_are_damaged(settings: Settings) -> None:
    cut_in_half(settings.database_file)
    (settings.store_dir / "index.json").write_text("{")
    with pytest.raises(CorruptBlob, match="damaged, too"):
        repair(settings)
    assert list(settings.data_dir.rglob("*.damaged-*")) == []


def test_a_damaged_index_without_a_database_is_left_alone(settings: Settings) -> None:
    settings.database_file.unlink()
    (settings.store_dir / "index.json").write_text("{")
    with pytest.raises(CorruptBlob, match="empty"):
        repair(settings)


def test_a_folder_instead_of_the_log_is_handled(settings: Settings) -> None:
    (settings.data_dir / "octet.sqlite3-wal").mkdir()
    assert "octet.sqlite3-wal is a folder" in database_damage(settings)
    repair(settings)
    assert versions(settings) == [1, 2, 3]


def test_a_file_instead_of_the_data_directory_is_handled(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataUnusable, match="cannot be used"):
        versions(Settings(data_dir=tmp_path / "file"))
