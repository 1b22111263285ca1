"""A record of the artifacts that ran when the serving process crashed, and the quarantine of those that are not run
again.

Kept in a file, so that a restart of everything forgets nothing. The process that supervises writes what happened; the
serving process, which is forked from it after each crash, reads that, and writes when an artifact is let go.

**Who is guilty.** A crash names whatever ran at that moment: one artifact, or several that ran side by side. Those that
a crash has named are *suspects*, and from then on no two suspects run at the same time; a crash that names a suspect is
its alone. So the next crash tells them apart.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from service.cache.durable import locked, replace_file
from service.core.clock import Clock, SystemClock
from service.core.digest import Digest
from service.core.errors import OctetError, Quarantined
from service.core.settings import Settings

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """The crash record of an artifact.

    Attributes:
        crashes: when it was named, the earliest first.
        how: the last crash, for people.
        is_quarantined: whether it is not run any more.
    """

    crashes: tuple[datetime, ...]
    how: str
    is_quarantined: bool = False


class Crashes:
    """The file. Safe between threads; of the processes that share it one writes at a time.

    Args:
        limit: an artifact with so many crashes within `window_s` is quarantined.
    """

    def __init__(self, path: Path, limit: int, window_s: float, clock: Clock | None = None) -> None:
        self._path, self._limit, self._window = path, limit, timedelta(seconds=window_s)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._records: dict[Digest, Record] = {}
        self._read_at: tuple[int, int] | None = None  # inode and time of what was read last

    def note(self, artifacts: Sequence[Digest], how: str) -> dict[Digest, Record]:
        """A crash while `artifacts` ran: what is held against those that it is put down to."""
        now = self._clock.now()
        with self._lock:
            self._read()
            suspects = self._suspects(now)
            blamed = [artifact for artifact in artifacts if artifact in suspects] or artifacts
            found = {artifact: self._counted(artifact, now, how) for artifact in blamed}
            self._records |= found
            self._write()
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
            return artifact in self._suspects(self._clock.now())

    def quarantined(self) -> dict[Digest, Record]:
        with self._lock:
            self._read()
            return {artifact: record for artifact, record in self._records.items() if record.is_quarantined}

    def forgive(self, artifact: Digest) -> bool:
        """Holds nothing against the artifact any more; whether anything was."""
        with self._lock:
            self._read()
            if self._records.pop(artifact, None) is None:
                return False
            self._write()
            return True

    def forget(self, is_stored: Callable[[Digest], bool]) -> None:
        """Drops what is held against artifacts that are not stored any more."""
        with self._lock:
            self._read()
            gone = [artifact for artifact in self._records if not is_stored(artifact)]
            for artifact in gone:
                del self._records[artifact]
            if gone:
                self._write()

    def _suspects(self, now: datetime) -> set[Digest]:
        return {artifact for artifact, record in self._records.items() if self._recent(record, now)}

    def _recent(self, record: Record, now: datetime) -> tuple[datetime, ...]:
        return tuple(crash for crash in record.crashes if crash > now - self._window)

    def _counted(self, artifact: Digest, now: datetime, how: str) -> Record:
        before = self._records.get(artifact, Record((), ""))
        crashes = (*self._recent(before, now), now)
        return Record(crashes, how, before.is_quarantined or len(crashes) >= self._limit)

    def _read(self) -> None:
        """Takes over what another process wrote; a file that cannot be read is as good as none."""
        try:
            status = self._path.stat()
            if self._read_at == (status.st_ino, status.st_mtime_ns):
                return
            records = {Digest(name): _record(value) for name, value in json.loads(self._path.read_bytes()).items()}
            self._records, self._read_at = records, (status.st_ino, status.st_mtime_ns)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            _logger.exception("%s, the record of crashes, cannot be read", self._path)

    def _write(self) -> None:
        """Writes the records. If that fails, only this process and those forked from it know them."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._path.parent):
                replace_file(self._path, json.dumps({k: _json(v) for k, v in self._records.items()}, indent=1).encode())
            status = self._path.stat()
            self._read_at = status.st_ino, status.st_mtime_ns
        except (OSError, OctetError):
            _logger.exception("%s, the record of crashes, cannot be written", self._path)


def crashes_of(settings: Settings) -> Crashes:
    return Crashes(settings.crashes_file, settings.max_crashes, settings.crash_window_s)


def quarantined(artifact: Digest, record: Record) -> Quarantined:
    times = "once" if len(record.crashes) == 1 else f"{len(record.crashes)} times"
    return Quarantined(
        f"artifact {artifact} is in quarantine: the server crashed {times} while it ran, the last time at "
        f"{record.crashes[-1]:%Y-%m-%d %H:%M:%S} UTC ({record.how})",
        hint=f"push a model that builds to something else, or let it run again: octet quarantine {artifact} --forgive",
    )


def _record(value: dict[str, object]) -> Record:
    crashes = value["crashes"]
    if not isinstance(crashes, list) or not crashes:
        raise ValueError("a record without crashes")
    record = Record(tuple(map(datetime.fromisoformat, crashes)), str(value["how"]))
    return replace(record, is_quarantined=bool(value["is_quarantined"]))


def _json(record: Record) -> dict[str, object]:
    return {
        "crashes": [crash.isoformat() for crash in record.crashes],
        "how": record.how,
        "is_quarantined": record.is_quarantined,
    }
