"""Reads and writes files of records: one JSON document per line, so that the file of an interrupted run can still be
read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol, TextIO, TypeVar

Read = TypeVar("Read")


class Record(Protocol):
    """A dataclass with a field `kind` that identifies its type."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


def write(file: TextIO, record: Record) -> None:
    file.write(json.dumps({"kind": record.kind, **asdict(record)}) + "\n")
    file.flush()


def read(path: Path, types: Mapping[str, Callable[..., Read]]) -> Iterator[Read]:
    """Yields the records of a file. Raises KeyError for a line of an unknown type.

    Args:
        types: creates a record of each type from its fields.
    """
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        yield types[fields.pop("kind")](**fields)
