"""Files of records: one JSON document a line, so that a run that was cut short can still be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol, TextIO


class Record(Protocol):
    """A dataclass that says in `kind` which one it is."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


def write(file: TextIO, record: Record) -> None:
    file.write(json.dumps({"kind": record.kind, **asdict(record)}) + "\n")
    file.flush()


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each record's kind and fields."""
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        yield fields.pop("kind"), fields
