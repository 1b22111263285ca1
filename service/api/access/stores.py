"""Where keys, what was used of them, and the audit log are kept: files of one machine, or tables of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.api.access.audit import AuditFile, AuditLog, AuditStore
from service.api.access.keys import FollowedKeys, KeyFile, KeyRing, KeyStore
from service.api.access.usage import UsageFile, UsageStore
from service.core.clock import Clock
from service.core.settings import Settings

if TYPE_CHECKING:  # it loads SQLAlchemy
    from service.db import Database


@dataclass(frozen=True)
class Stores:
    """All three."""

    keys: KeyStore
    usage: UsageStore
    audit: AuditStore

    def ring(self, clock: Clock | None = None) -> KeyRing:
        """What makes and revokes keys."""
        return KeyRing(self.keys, AuditLog(self.audit, clock), clock)

    @property
    def is_followed(self) -> bool:
        """Whether changes by others are noticed only by `refresh`."""
        return isinstance(self.keys, FollowedKeys)

    def refresh(self) -> None:
        """Looks for keys that others have changed; may wait for a database."""
        if isinstance(self.keys, FollowedKeys):
            self.keys.refresh()


def stores_of(settings: Settings, database: Database | None = None, clock: Clock | None = None) -> Stores:
    """The tables of `database` where servers of several machines share it, or else files in the data folder. A file of
    keys that `settings` name is used in any case.

    Args:
        database: migrated, or of SQLite.

    Raises:
        OctetError: the database does not answer.
    """
    if database is None or database.is_sqlite:
        return Stores(
            KeyFile(settings.file_of_keys), UsageFile(settings.usage_file, clock), AuditFile(settings.audit_file)
        )
    from service.db import AuditTable, KeyTable, UsageTable

    keys = FollowedKeys(KeyTable(database)) if settings.keys_file is None else KeyFile(settings.keys_file)
    return Stores(keys, UsageTable(database, clock), AuditTable(database))
