"""The use of API keys' rate limits and quotas, as every process that admits requests counts it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from service.core.access.key import Key

SHARING_S = 60.0
"""A key's rate is divided among the replicas that received a request with the key within this time."""


@dataclass(frozen=True)
class Use:
    """The use of a key on one day.

    Attributes:
        total: the number of requests that all replicas have admitted.
        replicas: the number of replicas where the key was used within the last `SHARING_S`.
    """

    total: int = 0
    replicas: int = 0


@dataclass(frozen=True)
class KeyUsage:
    """A key, and its use as far as this process has counted or read it.

    Attributes:
        day: the day that `used` counts, in UTC.
        used: the number of the key's requests that were admitted on that day.
        sharers: the number of replicas that the key's rate is divided among.
    """

    key: Key
    day: date
    used: int = 0
    sharers: int = 1
