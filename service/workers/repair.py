"""`octet doctor --repair`: rebuilds the tables from the store's index, or the index from the tables.

The tables and the index each contain what the other needs (`service.workers.catalog`). So the tables or the index can
be rebuilt if one of the two is damaged, but not if both are. A damaged file is moved aside and never deleted.
"""

from __future__ import annotations

from pathlib import Path

from service.cache.rebuild import index_damage, move_aside, rebuild_index
from service.core.errors import CorruptBlob, DatabaseDamaged
from service.core.settings import Settings
from service.db import AliasStore, BuildStore, Database, ModelStore
from service.db.engines.sqlite import check_file
from service.workers.catalog import synchronize
from service.workers.store import open_store


def database_damage(settings: Settings) -> str:
    """Returns what is wrong with the SQLite file. Returns an empty string if the file is intact or does not exist, or
    if PostgreSQL is used.

    Raises:
        OctetError: the file cannot be read for a reason other than damage.
    """
    if settings.database_url is not None or not settings.database_file.exists():
        return ""
    try:
        check_file(settings.database_file)
    except DatabaseDamaged as error:
        return error.message
    return ""


def repair(settings: Settings) -> list[str]:
    """Rebuilds what is damaged. A server that uses the data directory notices this, and restarts.

    Returns:
        One sentence for each repair; an empty list if nothing was damaged.

    Raises:
        CorruptBlob: both the database and the store's index are damaged.
        OctetError: a file cannot be read or written.
    """
    damage = database_damage(settings)
    has_folder = settings.store_url is None and settings.store_dir.is_dir() and any(settings.store_dir.iterdir())
    damaged_index = index_damage(settings.store_dir) if has_folder else ""
    if damaged_index and (damage or not _has_models(settings)):
        raise CorruptBlob(
            f"the store's index is damaged ({damaged_index}), and the database, from which it could be rebuilt, is "
            + ("damaged, too" if damage else "empty"),
            hint=f"restore {settings.store_dir / 'index.json'} or {settings.database_file} from a backup; the blobs "
            "are not affected",
        )
    done = []
    if damage:
        done.append(damage)
        done += [f"moved {path.name} to {move_aside(path).name}" for path in _files(settings.database_file)]
    if damaged_index:
        done.append(f"the store's index is damaged: {damaged_index}")
        done += [
            f"moved {path.name.partition('.damaged')[0]} to {path.name}" for path in rebuild_index(settings.store_dir)
        ]
    if not done:
        return []
    database = Database.of(settings)
    try:
        database.migrate()
        builds, models, aliases = BuildStore(database), ModelStore(database), AliasStore(database)
        restored = synchronize(open_store(settings, database), builds, models, aliases)
    finally:
        database.close()
    if damage:
        done.append(
            f"restored {restored.versions} model versions, {restored.builds} builds and {restored.aliases} aliases "
            "from the store; builds that failed or waited, verifications and the history are lost"
        )
    if damaged_index:
        done.append("listed the blobs of the store again, with the names that the database has for them")
    return done


def _files(database: Path) -> list[Path]:
    """Returns the SQLite file and the files that SQLite keeps next to it, as far as they exist."""
    beside = [database, *(database.with_name(f"{database.name}-{suffix}") for suffix in ("wal", "shm", "journal"))]
    return [path for path in beside if path.exists() or path.is_symlink()]


def _has_models(settings: Settings) -> bool:
    database = Database.of(settings)
    try:
        database.migrate()
        return bool(ModelStore(database).all_versions())
    finally:
        database.close()
