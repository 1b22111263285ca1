"""The stores of the keys, of their usage, and of the audit log: files on one machine, or tables of a cluster's
database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.api.access.audit import AuditFile, AuditLog, AuditStore
from service.api.access.keys import FollowedKeys, KeyFile, KeyRing, KeyStore
from service.api.access.usage import UsageFile, UsageStore
from service.core.clock import Clock
from service.core.settings import Settings

if TYPE_CHECKING:  # importing the module loads SQLAlchemy
    from service.db import Database


@dataclass(frozen=True)
class Stores:
    """The stores of the keys, of their usage, and of the audit log."""

    keys: KeyStore
    usage: UsageStore
    audit: AuditStore

    def ring(self, clock: Clock | None = None) -> KeyRing:
        """Returns an object that creates and revokes keys in these stores."""
        return KeyRing(self.keys, AuditLog(self.audit, clock), clock)

    @property
    def is_followed(self) -> bool:
        """True if `refresh` must be called to notice changes by other processes."""
        return isinstance(self.keys, FollowedKeys)

    def refresh(self) -> None:
        """Reads keys that other processes changed. May block on the database."""
        if isinstance(self.keys, FollowedKeys):
            self.keys.refresh()


def stores_of(settings: Settings, database: Database | None = None, clock: Clock | None = None) -> Stores:
    """Returns tables of `database` if servers of several machines share it, otherwise files in the data folder. If the
    settings name a file of keys, the keys are in that file in both cases.

    Args:
        database: a database that is already migrated, unless it is SQLite.

    Raises:
        OctetError: the database does not respond.
    """
    if database is None or database.is_sqlite:
        return Stores(
            KeyFile(settings.file_of_keys), UsageFile(settings.usage_file, clock), AuditFile(settings.audit_file)
        )
    from service.db import AuditTable, KeyTable, UsageTable

    keys = FollowedKeys(KeyTable(database)) if settings.keys_file is None else KeyFile(settings.keys_file)
    return Stores(keys, UsageTable(database, clock), AuditTable(database))
