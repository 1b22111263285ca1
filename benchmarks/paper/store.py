"""The measurements of all runs: a file of JSON lines, one for each measured row. A new measurement replaces the older
one with the same part and name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.kept import today
from benchmarks.harness.machine import cpu_name, timestamp
from service.core.target import detect_host

MEASURED = Path(__file__).with_name("measured.jsonl")


@dataclass(frozen=True)
class Measurement:
    """One measured row.

    Attributes:
        part: the part of the run: `targets`, `accuracy`, `agreement`, `memory` or `speed`.
        name: the values that identify the row within its part, such as a model, a contestant and a number of threads.
        values: the results.
        run: the time at which the run began. Two figures are compared only if they come from the same run.
        machine: the CPU, and the target that it supports.
        versions: the versions of the packages that computed the results.
    """

    part: str
    name: tuple[str, ...]
    values: dict[str, Any]
    day: str
    run: str
    machine: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Run:
    """The facts that all measurements of a run share."""

    started_at: str
    machine: str

    @classmethod
    def begin(cls) -> Run:
        return cls(timestamp(), f"{cpu_name()}, {detect_host().target.name}")

    def measurement(
        self, part: str, name: Sequence[str], values: dict[str, Any], versions: dict[str, str]
    ) -> Measurement:
        return Measurement(part, tuple(name), values, today(), self.started_at, self.machine, versions)


def read(path: Path = MEASURED) -> list[Measurement]:
    """Returns all stored rows; none if the file does not exist. Raises ValueError if a line is not a measurement."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            fields = json.loads(line)
            rows.append(Measurement(**{**fields, "name": tuple(fields["name"])}))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{path}, line {number} is not a measurement: {error}") from error
    return rows


def store(measurements: Iterable[Measurement], path: Path = MEASURED) -> None:
    """Adds measurements one by one, so that those before an interruption are kept."""
    for measurement in measurements:
        rows = {(row.part, row.name): row for row in read(path)}
        rows[measurement.part, measurement.name] = measurement
        lines = [json.dumps(asdict(rows[key])) for key in sorted(rows)]
        unfinished = path.with_name(f"unfinished.{path.name}")
        unfinished.write_text("\n".join(lines) + "\n")
        unfinished.replace(path)
