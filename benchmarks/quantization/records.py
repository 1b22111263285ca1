"""The stored results of a run: a file for each network, beside the quantized files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.home import Home
from benchmarks.harness.machine import cpu_name, timestamp
from benchmarks.quantization.judging import Counted


@dataclass(frozen=True)
class Row:
    """A quantized file, or the tool's error message.

    Attributes:
        file: its name in the network's folder.
        seconds: the time of calibrating and quantizing.
        judged, agreed: the counts of correct decisions (None if the correct ones are unknown), and of decisions that
            equal the float network's.
        noise_db: the signal-to-noise ratio of the noisiest output: 10 log10(sum of the float output's squares / sum of
            the squared differences from it).
    """

    name: str
    file: str
    seconds: float = 0.0
    size_bytes: int = 0
    failed: str = ""
    judged: Counted | None = None
    agreed: Counted | None = None
    noise_db: float = 0.0

    def to_json(self) -> dict[str, Any]:
        parts = {name: part.to_json() if part else None for name, part in self._counted().items()}
        return {**asdict(replace(self, judged=None, agreed=None)), **parts}

    def _counted(self) -> dict[str, Counted | None]:
        return {"judged": self.judged, "agreed": self.agreed}

    @staticmethod
    def from_json(members: dict[str, Any]) -> Row:
        counted = {name: Counted.from_json(members[name]) if members[name] else None for name in ("judged", "agreed")}
        return Row(**{**members, **counted})


@dataclass(frozen=True)
class Record:
    """A network's results.

    Attributes:
        rows: the float network's row is the first.
        refused: the reason why Octet does not support the network, which then has no rows.
        said: a comparison of Octet's results with ONNX Runtime's, and the operators that stayed float.
        at, machine, load: the time of the measurement, the machine, and its load average.
    """

    title: str
    what: str
    rows: tuple[Row, ...] = ()
    scored: str = ""
    agreed: str = ""
    refused: str = ""
    said: str = ""
    inputs: int = 0
    at: str = ""
    machine: str = ""
    load: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(replace(self, rows=())), "rows": [row.to_json() for row in self.rows]}

    @staticmethod
    def from_json(members: dict[str, Any]) -> Record:
        return Record(**{**members, "rows": tuple(Row.from_json(row) for row in members["rows"])})


def conditions() -> dict[str, Any]:
    """Returns the time, the machine and its load average, for a measurement that is made now."""
    return {"at": timestamp(), "machine": cpu_name(), "load": os.getloadavg()[0]}


def describe(run: Mapping[str, Any]) -> str:
    """Returns the conditions of a stored measurement as text."""
    return f"{run['at']}, {run['machine']}, load average {run['load']:.1f} at the start"


def slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def folder_of(home: Home, title: str) -> Path:
    """Returns the folder of a network's quantized files."""
    return home.artifacts / "quantization" / slug(title)


def results_of(home: Home, name: str) -> Path:
    return home.results / "quantization" / f"{name}.json"


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def read(home: Home, titles: list[str]) -> list[Record]:
    """Returns the existing results, in the order of `titles`."""
    paths = [results_of(home, slug(title)) for title in titles]
    return [Record.from_json(json.loads(path.read_text())) for path in paths if path.exists()]
