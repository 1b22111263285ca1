"""The history of the tables, for Alembic. To add to it, change `tables.py`, then write the next file in `versions/`.

Programs of two versions share the tables while a cluster is upgraded. So a migration expands: a column that it adds may
be null or has a default of the server's, and nothing is dropped, renamed or narrowed that the version before uses. The
version after may drop it; that migration sets `schema_floor` to the oldest one whose program can work with the result.

Alembic is imported where it is used: it takes a fifth of a second and 6 MB, and most processes migrate nothing. Which
migration is due is seen without it: a revision is the number that the name of its file begins with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from service.core.errors import Unsupported

if TYPE_CHECKING:
    from alembic.config import Config

_FOLDER = Path(__file__).parent
_FLOOR = sa.table("schema_floor", sa.column("oldest", sa.Text))
_VERSION = sa.table("alembic_version", sa.column("version_num", sa.Text))  # Alembic's own, of one row


def upgrade(connection: sa.Connection) -> None:
    """Brings the tables to the newest migration, within the connection's transaction.

    They are left alone where a newer version of the program has migrated them, and this one can work with the result.

    Raises:
        Unsupported: it cannot.
    """
    current, newest = versions(connection)
    if current == newest or (current is not None and current > newest and _oldest(connection) <= newest):
        return
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(alembic_config(connection), "head")
    except CommandError as error:
        raise Unsupported(
            f"the database cannot be brought to this version's tables: {error}",
            hint="it was written by a newer Octet: install that version",
        ) from error


def versions(connection: sa.Connection) -> tuple[str | None, str]:
    """The last migration that the database has seen, if any, and the last that there is."""
    newest = max(path.name.partition("_")[0] for path in _FOLDER.glob("versions/[0-9]*.py"))
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None, newest
    return connection.execute(sa.select(_VERSION.c.version_num)).scalar(), newest


def _oldest(connection: sa.Connection) -> str:
    """The first version whose program can work with the tables."""
    oldest: str = connection.execute(sa.select(_FLOOR.c.oldest)).scalar_one()
    return oldest


def alembic_config(connection: sa.Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
