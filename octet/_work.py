"""Temporary folders and progress, for the functions that compile or quantize."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from service.core.builds.build import Stage


class TemporaryFolder:
    """A folder that is deleted when nothing refers to this object any more, or the process ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="octet-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class Stages:
    """Reports the stages of a build (`service.core.builds.build.Progress`)."""

    def __init__(self, on_stage: Callable[[str], None] | None) -> None:
        self._on_stage, self._last = on_stage, ""

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        if stage != self._last:
            self._last = stage
            if self._on_stage is not None:
                self._on_stage(str(stage))

    def log(self, line: str) -> None:
        """Ignores a line of the build's log."""
