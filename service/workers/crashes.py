"""Records which artifacts ran when the data plane crashed, and quarantines those that must not run again.

The record is a file, so it survives a restart of the whole service. The supervisor writes crashes to the record. The
control plane reads them, and changes the record when an artifact is released from quarantine. If several machines share
a database, the control plane moves the file's records to a table in that database, so that crashes on all machines
count together. The supervisor itself uses only the file, because the database may be unreachable.

**Which artifact is blamed.** A crash names every artifact that ran at that moment: one, or several that ran at the same
time. An artifact that a crash has named is a *suspect*. From then on, no two suspects run at the same time. If a later
crash names a suspect, only suspects are blamed for it, so this crash shows which of the suspects caused the first
crash.
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
from service.core.cluster.crash import Record, Records, record_from_json
from service.core.digest import Digest
from service.core.errors import OctetError, Quarantined
from service.core.settings import Settings

if TYPE_CHECKING:  # importing the module loads SQLAlchemy
    from service.db import Database

_logger = logging.getLogger(__name__)
_WHERE = "the record of crashes"


class CrashStore(Protocol):
    """Crash records by artifact. Safe to use from several threads and processes."""

    def read(self) -> Records:
        """Returns the records. Raises `OctetError`, `OSError`, `ValueError` or `TypeError` if they cannot be read."""

    def change(self, change: Callable[[Records], Records]) -> Records:
        """Replaces the records with the result of `change`, which may be called more than once. Raises the same errors
        as `read`.
        """


class CrashFile:
    """A `CrashStore` in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # the inode and the time of the version of the file that was read last, and the records in it
        self._cached: tuple[tuple[int, int], Records] | None = None

    def read(self) -> Records:
        try:
            status = self._path.stat()
            state = status.st_ino, status.st_mtime_ns
            cached = self._cached
            if cached is None or cached[0] != state:
                found = json.loads(self._path.read_bytes())
                cached = self._cached = state, {Digest(name): record_from_json(value) for name, value in found.items()}
            return cached[1]
        except FileNotFoundError:
            return {}
        except (KeyError, AttributeError) as error:
            raise ValueError(f"{self._path} does not contain crash records") from error

    def change(self, change: Callable[[Records], Records]) -> Records:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._path.parent):
            try:
                current = self.read()
            except (ValueError, TypeError) as error:
                _logger.error("%s is damaged, and is replaced by an empty one: %s", self._path, error)
                current = {}
            records = change(current)
            replace_file(self._path, json.dumps({k: v.to_json() for k, v in records.items()}, indent=1).encode())
        return records


class Crashes:
    """Decides which artifacts are suspects and which are quarantined. Safe to use from several threads.

    Args:
        limit: an artifact with this many crashes within `window_s` is quarantined.
        local: this machine's own records, if `store` is shared with other machines.
    """

    def __init__(
        self,
        store: CrashStore,
        limit: int,
        window_s: float,
        clock: Clock | None = None,
        local: CrashStore | None = None,
    ) -> None:
        self._store, self._limit, self._window = store, limit, timedelta(seconds=window_s)
        self._local = local
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._records: Records = {}  # the records when they were last read or changed

    def note(self, artifacts: Sequence[Digest], how: str) -> dict[Digest, Record]:
        """Records a crash while `artifacts` ran. Returns the new records of the artifacts that are blamed for it."""
        now = self._clock.now()
        found: dict[Digest, Record] = {}

        def new_record(before: Record | None) -> Record:
            return self._updated_record(before, (*(before.crashes if before else ()), now), how)

        def add(records: Records) -> Records:
            nonlocal found
            suspects = self._suspects(records, now)
            blamed = [artifact for artifact in artifacts if artifact in suspects] or artifacts
            found = {artifact: new_record(records.get(artifact)) for artifact in blamed}
            return {**records, **found}

        with self._lock:
            self._change(add)
        return found

    def check(self, artifact: Digest) -> bool:
        """Returns true if the artifact is a suspect, which must not run at the same time as another suspect.

        Raises:
            Quarantined: the artifact must not run at all.
        """
        with self._lock:
            self._read()
            record = self._records.get(artifact)
            if record is not None and record.is_quarantined:
                raise quarantine_error(artifact, record)
            return artifact in self._suspects(self._records, self._clock.now())

    def quarantined(self) -> dict[Digest, Record]:
        with self._lock:
            self._read()
            return {artifact: record for artifact, record in self._records.items() if record.is_quarantined}

    def forgive(self, artifact: Digest) -> bool:
        """Deletes the crash record of an artifact. Returns false if the artifact has no crash record."""
        with self._lock:
            self._read()
            if artifact not in self._records:
                return False
            self._change(lambda records: {name: record for name, record in records.items() if name != artifact})
            return True

    def forget(self, is_stored: Callable[[Digest], bool]) -> None:
        """Drops the crash records of artifacts that are no longer stored."""
        with self._lock:
            self._read()
            gone = {artifact for artifact in self._records if not is_stored(artifact)}
            if gone:
                self._change(lambda records: {name: record for name, record in records.items() if name not in gone})

    def _suspects(self, records: Records, now: datetime) -> set[Digest]:
        return {artifact for artifact, record in records.items() if self._recent(record.crashes, now)}

    def _recent(self, crashes: Sequence[datetime], now: datetime) -> tuple[datetime, ...]:
        return tuple(crash for crash in crashes if crash > now - self._window)

    def _updated_record(self, before: Record | None, crashes: Sequence[datetime], how: str) -> Record:
        """Returns the record of an artifact that crashed at these times; `how` describes the latest crash."""
        recent = self._recent(crashes, self._clock.now()) or tuple(crashes)
        return Record(recent, how, (before is not None and before.is_quarantined) or len(recent) >= self._limit)

    def _read(self) -> None:
        """Reloads the records that other processes may have changed. If they cannot be read, the cached ones stay."""
        self._upload_local()
        try:
            self._records = self._store.read()
        except (OSError, ValueError, TypeError, OctetError) as error:
            _logger.error("%s cannot be read: %s", _WHERE, error)

    def _change(self, change: Callable[[Records], Records]) -> None:
        """Changes the stored records. If that fails, the change is kept only in this process and in processes forked
        from it.
        """
        try:
            self._records = self._store.change(change)
        except (OSError, ValueError, TypeError, OctetError) as error:
            _logger.error("%s cannot be written: %s", _WHERE, error)
            self._records = change(self._records)

    def _upload_local(self) -> None:
        """Moves this machine's records to the shared store. Moving a crash twice counts it once."""
        if self._local is None:
            return
        try:
            noted = self._local.read()
            if not noted:
                return

            def add(records: Records) -> Records:
                merged = dict(records)
                for artifact, record in noted.items():
                    before = records.get(artifact)
                    times = Counter(record.crashes) | Counter(before.crashes if before else ())
                    merged[artifact] = self._updated_record(before, sorted(times.elements()), record.how)
                return merged

            self._records = add(self._records)
            self._store.change(add)
            self._local.change(lambda records: {k: record for k, record in records.items() if noted.get(k) != record})
        except (OSError, ValueError, TypeError, OctetError) as error:
            _logger.error("%s of this machine cannot be moved to the shared store yet: %s", _WHERE, error)


def crashes_of(settings: Settings, database: Database | None = None) -> Crashes:
    """Returns the crash record of this machine, or of all machines that share `database`."""
    local, limit, window_s = CrashFile(settings.crashes_file), settings.max_crashes, settings.crash_window_s
    if database is None or database.is_sqlite:
        return Crashes(local, limit, window_s)
    from service.db import CrashTable

    return Crashes(CrashTable(database), limit, window_s, local=local)


def quarantine_error(artifact: Digest, record: Record) -> Quarantined:
    times = "once" if len(record.crashes) == 1 else f"{len(record.crashes)} times"
    return Quarantined(
        f"artifact {artifact} is in quarantine: the server crashed {times} while it ran, the last time at "
        f"{record.crashes[-1]:%Y-%m-%d %H:%M:%S} UTC ({record.how})",
        hint=f"push another model, or release this one: octet quarantine {artifact} --forgive",
    )
