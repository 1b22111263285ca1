"""Folders for data that is too large for a checkout: the peers' environments, models, artifacts, results."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
# As in the tests: beside the checkout, unless set otherwise.
SHARED = Path(os.environ.get("OCTET_TEST_DATA") or CHECKOUT.parent / "shared" / "data")

OWN_ENVIRONMENT = "octet"
_ANY_TIME = "[!.]" * len("YYYY-MM-DDTHHMMSSZ")  # a pattern of any time; the name of the part may follow


@dataclass(frozen=True)
class Home:
    """The folder that contains the data of the benchmarks."""

    path: Path

    @property
    def models(self) -> Path:
        """Returns the folder of generated models; supplied models are in `SHARED`."""
        return self.path / "models"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def results(self) -> Path:
        return self.path / "results"

    def new_results(self, part: str = "") -> Path:
        """Returns a new file for a run that begins now, of a contest or of another `part` of the benchmarks."""
        return self.results / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}{_ending(part)}"

    def latest_results(self, part: str = "") -> Path:
        """Returns the latest file. Raises SystemExit if no run was made yet."""
        found = sorted(self.results.glob(f"{_ANY_TIME}{_ending(part)}"))
        if not found:
            raise SystemExit(f"no results yet; run: python -m benchmarks.{part or 'contest'}")
        return found[-1]

    def environment(self, name: str) -> Path:
        return self.path / "venvs" / name

    def python(self, name: str) -> Path:
        """Returns the interpreter of an environment; `octet` is the one that this process uses."""
        return Path(sys.executable) if name == OWN_ENVIRONMENT else self.environment(name) / "bin" / "python"

    def model(self, relative: str) -> Path | None:
        """Returns a model file, generated or given; None if it does not exist."""
        for folder in (self.models, SHARED / "models"):
            if (folder / relative).exists():
                return folder / relative
        return None


def _ending(part: str) -> str:
    return f".{part}.jsonl" if part else ".jsonl"


def default_home() -> Home:
    """Returns `OCTET_BENCH_HOME`, or a folder in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Home(Path(os.environ.get("OCTET_BENCH_HOME") or cache / "octet-bench"))
