"""Records which artifacts could not be loaded on this machine."""

from __future__ import annotations

import threading
from time import monotonic

from service.core.digest import Digest
from service.core.errors import NotReady, OctetError

_RETRY_S = 10.0  # an artifact that could not be loaded is not tried again for this long
_MOST = 1000  # only this many failures are kept; an artifact whose failure is no longer kept is tried again


class Failures:
    """Records why artifacts could not be loaded at the last attempt. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[Digest, tuple[float, OctetError]] = {}

    def __contains__(self, artifact: Digest) -> bool:
        return artifact in self._failures

    def of(self, artifact: Digest) -> OctetError | None:
        return self._failures.get(artifact, (0.0, None))[1]

    def check(self, artifact: Digest) -> None:
        """Raises the `OctetError` of a recorded failure if it is too soon to try again."""
        retry_at_s, failure = self._failures.get(artifact, (0.0, None))
        if failure is not None and monotonic() < retry_at_s:
            raise failure

    def note(self, artifact: Digest, error: Exception) -> OctetError:
        """Records a failure, and returns the error that is reported for it from now on."""
        failure = error if isinstance(error, OctetError) else NotReady(f"{type(error).__name__}: {error}")
        failure.retry_after_s = failure.retry_after_s or _RETRY_S
        with self._lock:
            self._failures.pop(artifact, None)
            self._failures[artifact] = monotonic() + _RETRY_S, failure
            if len(self._failures) > _MOST:
                del self._failures[next(iter(self._failures))]
        return failure

    def forget(self, artifact: Digest) -> None:
        with self._lock:
            self._failures.pop(artifact, None)
