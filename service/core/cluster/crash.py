"""The crash records of artifacts that were running when the data plane crashed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from service.core.digest import Digest


@dataclass(frozen=True)
class Record:
    """The crash record of an artifact.

    Attributes:
        crashes: the times of the crashes that the artifact was blamed for, the earliest first.
        how: a description of the last crash.
        is_quarantined: True if the artifact may not run any more.
    """

    crashes: tuple[datetime, ...]
    how: str
    is_quarantined: bool = False

    def to_json(self) -> dict[str, object]:
        return {
            "crashes": [crash.isoformat() for crash in self.crashes],
            "how": self.how,
            "is_quarantined": self.is_quarantined,
        }


Records = Mapping[Digest, Record]


def record_from_json(value: Mapping[str, object]) -> Record:
    """Parses the result of `Record.to_json`.

    Raises:
        KeyError, TypeError, ValueError: `value` is not of that form.
    """
    crashes = value["crashes"]
    if not isinstance(crashes, list) or not crashes:
        raise ValueError("a record without crashes")
    return Record(tuple(map(datetime.fromisoformat, crashes)), str(value["how"]), bool(value["is_quarantined"]))
