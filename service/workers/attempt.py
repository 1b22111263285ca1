"""One worker's attempt at one build: renews the lease, reports progress, and interrupts the build when it must stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from service.core.builds.build import BuildCanceled, LeaseLost, Stage
from service.core.errors import DatabaseBusy, DatabaseUnreachable, NotFound
from service.core.settings import Settings
from service.core.system.outage import log_trouble
from service.db import BuildStore, Claim, Watch

_logger = logging.getLogger(__name__)
_LOOK_S = 0.5  # a cancellation is noticed within this time; each check costs one read of the database
_FRACTION_S = 0.2  # progress within a stage is written at most this often


class Stopping(BuildCanceled):
    """This worker is stopping, so another worker has to do the build."""


class Attempt:
    """A `core.builds.build.Progress` that writes to the builds table. As a context manager, it renews the lease of the
    claim until the block ends.

    A thread renews the lease and checks for a cancellation. The next call of `stage` raises the error that the thread
    found. The pipeline calls `stage` about ten times a second in all stages.

    Attributes:
        last_stage: the stage that was begun last.
    """

    def __init__(self, builds: BuildStore, claim: Claim, settings: Settings, stop: threading.Event) -> None:
        self._builds, self._claim, self._stop = builds, claim, stop
        self._lease_s = settings.lease_s
        self._every_s = min(settings.heartbeat_s, settings.lease_s / 3)
        self._interruption: BuildCanceled | None = None
        self.last_stage: Stage | None = None
        self._fraction, self._written_s = 0.0, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew_lease, name="octet-heartbeat", daemon=True)

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        """Records the progress. Raises `LeaseLost`, `Stopping`, or `BuildCanceled` if the build was canceled."""
        self._check()
        is_recent = time.monotonic() - self._written_s < _FRACTION_S
        if stage is self.last_stage and (fraction == self._fraction or is_recent):
            return
        self.last_stage, self._fraction, self._written_s = stage, fraction, time.monotonic()
        self._write(lambda: self._builds.progress(self._claim, stage, fraction))

    def log(self, line: str) -> None:
        """Adds a line to the log of the build. Raises the same errors as `stage`."""
        self._check()
        self._write(lambda: self._builds.log(self._claim, line))

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (DatabaseBusy, DatabaseUnreachable) as error:  # a failed progress report must not end the build
            log_trouble(_logger, error, "build %s: cannot write its progress", self._claim.build.id)

    def __enter__(self) -> Attempt:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _check(self) -> None:
        if self._interruption is not None:
            raise self._interruption
        if self._stop.is_set():
            raise Stopping("this worker is stopping")

    def _renew_lease(self) -> None:
        beaten_s = time.monotonic()
        watch = Watch(self._builds.notifications)
        while not self._over.wait(min(_LOOK_S, self._every_s)):
            try:
                if time.monotonic() - beaten_s >= self._every_s:
                    self._builds.heartbeat(self._claim, self._lease_s)
                    beaten_s = time.monotonic()
                elif watch.is_due() and self._builds.get(self._claim.build.id).cancel_requested:
                    raise BuildCanceled(f"build {self._claim.build.id} was canceled")
            except BuildCanceled as interruption:
                self._interruption = interruption
                return
            except NotFound:  # all models that requested the build were deleted
                self._interruption = LeaseLost(f"build {self._claim.build.id} is no longer requested")
                return
            # The database is busy or full; the next attempt may still renew the lease in time.
            except Exception as error:
                log_trouble(_logger, error, "build %s: cannot renew its lease", self._claim.build.id)
                if time.monotonic() - beaten_s > self._lease_s:
                    self._interruption = LeaseLost(f"build {self._claim.build.id} could not renew its lease in time")
                    return
