"""The usage of keys, which replicas share because of the keys' limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Protocol

from service.cache.durable import locked, replace_file
from service.core.access.usage import SHARING_S, Use
from service.core.clock import Clock, SystemClock

_logger = logging.getLogger(__name__)


class UsageStore(Protocol):
    """The counts of one day, which is the last day that was reported. Safe to use from several processes."""

    def totals(self, day: date) -> Mapping[str, int]:
        """Returns how many requests of each key all replicas admitted on a day."""

    def exchange(self, day: date, replica: str, used: Mapping[str, int], also: Collection[str]) -> Mapping[str, Use]:
        """Reports how many requests of each key a replica has admitted on a day. Replaces its earlier report for that
        day.

        Args:
            also: further keys whose usage is returned.

        Returns:
            The usage of all these keys by all replicas.

        Raises:
            OctetError, OSError: the report may or may not have been stored.
        """


_Rows = dict[str, dict[str, tuple[int, str]]]  # by key and replica: the count and the time at which it was reported


class UsageFile:
    """A `UsageStore` in a JSON file, for the processes of one machine."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path, self._clock = path, clock or SystemClock()

    def totals(self, day: date) -> Mapping[str, int]:
        return {key: sum(used for used, _ in rows.values()) for key, rows in self._read(day).items()}

    def exchange(self, day: date, replica: str, used: Mapping[str, int], also: Collection[str]) -> Mapping[str, Use]:
        now = self._clock.now()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._path.parent):
            found = self._read(day)
            for key, count in used.items():
                found.setdefault(key, {})[replica] = (count, now.isoformat())
            if used:
                replace_file(self._path, json.dumps({"day": day.isoformat(), "keys": found}).encode())
        since = (now - timedelta(seconds=SHARING_S)).isoformat()
        return {
            key: Use(sum(count for count, _ in rows.values()), sum(seen_at > since for _, seen_at in rows.values()))
            for key in {*used, *also}
            if (rows := found.get(key))
        }

    def _read(self, day: date) -> _Rows:
        try:
            found = json.loads(self._path.read_bytes())
            if found["day"] != day.isoformat():
                return {}
            return {
                str(key): {
                    str(replica): (int(used), datetime.fromisoformat(at).isoformat())
                    for replica, (used, at) in rows.items()
                }
                for key, rows in found["keys"].items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _logger.error("cannot read %s, the usage of the API keys: %s", self._path, error)
            return {}
