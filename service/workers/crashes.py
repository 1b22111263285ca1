"""A record of the artifacts that ran when the data plane crashed, and the quarantine of those that are not run again.

Kept in a file, so that a restart of everything forgets nothing. The process that supervises writes what happened; the
control plane reads that, and writes when an artifact is let go. Where machines share a database, it moves what the file
holds into a table there: crashes on all machines count together. The supervisor needs no database, which may be away.

**Who is guilty.** A crash names whatever ran at that moment: one artifact, or several that ran side by side. Those that
a crash has named are *suspects*, and from then on no two suspects run at the same time; a crash that names a suspect is
its alone. So the next crash tells them apart.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from service.cache.durable import locked, replace_file
from service.core.clock import Clock, SystemClock
from service.core.crash import Record, Records, record_from_json
from service.core.digest import Digest
from service.core.errors import OctetError, Quarantined
from service.core.settings import Settings

if TYPE_CHECKING:  # it loads SQLAlchemy
    from service.db import Database

_logger = logging.getLogger(__name__)
_WHERE = "the record of crashes"


class CrashStore(Protocol):
    """Records by artifact. Safe between threads and processes."""

    def read(self) -> Records:
        """Raises `OctetError`, `OSError`, `ValueError` or `TypeError`: they cannot be read."""

    def change(self, change: Callable[[Records], Records]) -> Records:
        """Puts what `change` makes of the records in their place; it may be called more than once. Raises as `read`."""


class CrashFile:
    """See `CrashStore`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[tuple[int, int], Records] | None = None  # inode and time of what was read last, and that

    def read(self) -> Records:
        try:
            status = self._path.stat()
            state = status.st_ino, status.st_mtime_ns
            seen = self._seen
            if seen is None or seen[0] != state:
                found = json.loads(self._path.read_bytes())
                seen = self._seen = state, {Digest(name): record_from_json(value) for name, value in found.items()}
            return seen[1]
        except FileNotFoundError:
            return {}
        except (KeyError, AttributeError) as error:
            raise ValueError(f"{self._path} does not hold records of crashes") from error

    def change(self, change: Callable[[Records], Records]) -> Records:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._path.parent):
            try:
                known = self.read()
            except (ValueError, TypeError) as error:
                _logger.error("%s is damaged, and is begun anew: %s", self._path, error)
                known = {}
            records = change(known)
            replace_file(self._path, json.dumps({k: v.to_json() for k, v in records.items()}, indent=1).encode())
        return records


class Crashes:
    """What is held against artifacts. Safe between threads.

    Args:
        limit: an artifact with so many crashes within `window_s` is quarantined.
        here: what this machine has noted, where `store` is for others too.
    """

    def __init__(
        self,
        store: CrashStore,
        limit: int,
        window_s: float,
        clock: Clock | None = None,
        here: CrashStore | None = None,
    ) -> None:
        self._store, self._limit, self._window = store, limit, timedelta(seconds=window_s)
        self._here = here
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._records: Records = {}  # as far as is known

    def note(self, artifacts: Sequence[Digest], how: str) -> dict[Digest, Record]:
        """A crash while `artifacts` ran: what is held against those that it is put down to."""
        now = self._clock.now()
        found: dict[Digest, Record] = {}

        def counted(before: Record | None) -> Record:
            return self._counted(before, (*(before.crashes if before else ()), now), how)

        def add(records: Records) -> Records:
            nonlocal found
            suspects = self._suspects(records, now)
            blamed = [artifact for artifact in artifacts if artifact in suspects] or artifacts
            found = {artifact: counted(records.get(artifact)) for artifact in blamed}
            return {**records, **found}

        with self._lock:
            self._change(add)
        return found

    def check(self, artifact: Digest) -> bool:
        """Whether the artifact is a suspect, so that it is to run beside no other one.

        Raises:
            Quarantined: it is not to run at all.
        """
        with self._lock:
            self._read()
            record = self._records.get(artifact)
            if record is not None and record.is_quarantined:
                raise quarantined(artifact, record)
            return artifact in self._suspects(self._records, self._clock.now())

    def quarantined(self) -> dict[Digest, Record]:
        with self._lock:
            self._read()
            return {artifact: record for artifact, record in self._records.items() if record.is_quarantined}

    def forgive(self, artifact: Digest) -> bool:
        """Holds nothing against the artifact any more; whether anything was."""
        with self._lock:
            self._read()
            if artifact not in self._records:
                return False
            self._change(lambda records: {name: record for name, record in records.items() if name != artifact})
            return True

    def forget(self, is_stored: Callable[[Digest], bool]) -> None:
        """Drops what is held against artifacts that are not stored any more."""
        with self._lock:
            self._read()
            gone = {artifact for artifact in self._records if not is_stored(artifact)}
            if gone:
                self._change(lambda records: {name: record for name, record in records.items() if name not in gone})

    def _suspects(self, records: Records, now: datetime) -> set[Digest]:
        return {artifact for artifact, record in records.items() if self._recent(record.crashes, now)}

    def _recent(self, crashes: Sequence[datetime], now: datetime) -> tuple[datetime, ...]:
        return tuple(crash for crash in crashes if crash > now - self._window)

    def _counted(self, before: Record | None, crashes: Sequence[datetime], how: str) -> Record:
        """What is held against an artifact that crashed at these times, the latest `how`."""
        recent = self._recent(crashes, self._clock.now()) or tuple(crashes)
        return Record(recent, how, (before is not None and before.is_quarantined) or len(recent) >= self._limit)

    def _read(self) -> None:
        """Takes over what others wrote; where that cannot be read, what is known stays."""
        self._hand_over()
        try:
            self._records = self._store.read()
        except (OSError, ValueError, TypeError, OctetError) as error:
            _logger.error("%s cannot be read: %s", _WHERE, error)

    def _change(self, change: Callable[[Records], Records]) -> None:
        """If it cannot be written, only this process knows it, and those that are forked from it."""
        try:
            self._records = self._store.change(change)
        except (OSError, ValueError, TypeError, OctetError) as error:
            _logger.error("%s cannot be written: %s", _WHERE, error)
            self._records = change(self._records)

    def _hand_over(self) -> None:
        """Moves what this machine has noted to where all see it. What was moved twice is there once."""
        if self._here is None:
            return
        try:
            noted = self._here.read()
            if not noted:
                return

            def add(records: Records) -> Records:
                merged = dict(records)
                for artifact, record in noted.items():
                    before = records.get(artifact)
                    times = Counter(record.crashes) | Counter(before.crashes if before else ())
                    merged[artifact] = self._counted(before, sorted(times.elements()), record.how)
                return merged

            self._records = add(self._records)
            self._store.change(add)
            self._here.change(lambda records: {name: each for name, each in records.items() if noted.get(name) != each})
        except (OSError, ValueError, TypeError, OctetError) as error:
            _logger.error("%s of this machine cannot be handed over, and is later: %s", _WHERE, error)


def crashes_of(settings: Settings, database: Database | None = None) -> Crashes:
    """The record of this machine, or of all that share `database`."""
    here, limit, window_s = CrashFile(settings.crashes_file), settings.max_crashes, settings.crash_window_s
    if database is None or database.is_sqlite:
        return Crashes(here, limit, window_s)
    from service.db import CrashTable

    return Crashes(CrashTable(database), limit, window_s, here=here)


def quarantined(artifact: Digest, record: Record) -> Quarantined:
    times = "once" if len(record.crashes) == 1 else f"{len(record.crashes)} times"
    return Quarantined(
        f"artifact {artifact} is in quarantine: the server crashed {times} while it ran, the last time at "
        f"{record.crashes[-1]:%Y-%m-%d %H:%M:%S} UTC ({record.how})",
        hint=f"push a model that builds to something else, or let it run again: octet quarantine {artifact} --forgive",
    )
