"""The migrations of the tables, for Alembic. To add a migration, change `tables.py`, then write the next file in
`versions/`.

While a cluster is upgraded, processes of two releases share the tables. So a migration only expands them: a new column
is nullable or has a default on the server, and nothing that the previous release uses is dropped, renamed or narrowed.
The following release may drop what is no longer used. The migration that drops it sets `schema_floor` to the oldest
migration whose release can work with the result.

Alembic is imported only when it is needed: it takes a fifth of a second and 6 MB, and most processes migrate nothing.
The pending migrations are found without Alembic, because a revision is the number at the beginning of its file's name.
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
_VERSION = sa.table("alembic_version", sa.column("version_num", sa.Text))  # Alembic's table, which has one row


def upgrade(connection: sa.Connection) -> None:
    """Brings the tables to the newest migration, within the connection's transaction.

    Does nothing if a newer release has migrated the tables and this release can work with the result.

    Raises:
        Unsupported: this release cannot work with the tables.
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
            f"the tables of the database cannot be migrated to this release: {error}",
            hint="a newer release of Octet wrote them: install that release",
        ) from error


def versions(connection: sa.Connection) -> tuple[str | None, str]:
    """Returns the last migration that was applied to the database (None for an empty one), and the newest migration."""
    newest = max(path.name.partition("_")[0] for path in _FOLDER.glob("versions/[0-9]*.py"))
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None, newest
    return connection.execute(sa.select(_VERSION.c.version_num)).scalar(), newest


def _oldest(connection: sa.Connection) -> str:
    """Returns the oldest migration whose release can work with the tables."""
    oldest: str = connection.execute(sa.select(_FLOOR.c.oldest)).scalar_one()
    return oldest


def alembic_config(connection: sa.Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
