"""The history of the tables, for Alembic. To add to it, change `tables.py`, then write the next file in `versions/`.

Alembic is imported where it is used: it takes a fifth of a second, and most processes migrate nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from service.core.errors import Unsupported

if TYPE_CHECKING:
    from alembic.config import Config


def upgrade(connection: sa.Connection) -> None:
    """Brings the tables to the newest migration, within the connection's transaction.

    Raises:
        Unsupported: they are the result of a migration that this version of the program does not have.
    """
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
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    newest = ScriptDirectory.from_config(alembic_config(connection)).get_current_head()
    assert newest is not None
    return MigrationContext.configure(connection).get_current_revision(), newest


def alembic_config(connection: sa.Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
