"""How much of their limits API keys have used, counted by every process that admits requests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from service.core.key import Key

SHARING_S = 60.0
"""For so long after its last request at a replica a key's rate is shared with that one."""


@dataclass(frozen=True)
class Use:
    """The use of a key on one day.

    Attributes:
        total: requests that all replicas have let through.
        replicas: at how many of them it was used within the last `SHARING_S`.
    """

    total: int = 0
    replicas: int = 0


@dataclass(frozen=True)
class KnownKey:
    """A key and what is known of its use.

    Attributes:
        day: the day, UTC.
        used: how many of its requests are known to have been let through on that day.
        sharers: among how many replicas its rate is divided.
    """

    key: Key
    day: date
    used: int = 0
    sharers: int = 1
