"""Artifacts that could not be loaded here."""

from __future__ import annotations

import threading
from time import monotonic

from service.core.digest import Digest
from service.core.errors import NotReady, OctetError

_RETRY_S = 10.0  # an artifact that could not be loaded is not tried again for this long
_MOST = 1000  # of more, those that failed longest ago are forgotten, and would be tried again


class Failures:
    """Why each could not, when it was last tried. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Digest, tuple[float, OctetError]] = {}

    def __contains__(self, artifact: Digest) -> bool:
        return artifact in self._known

    def of(self, artifact: Digest) -> OctetError | None:
        return self._known.get(artifact, (0.0, None))[1]

    def check(self, artifact: Digest) -> None:
        """Raises the `OctetError` of a failure of which it is too soon to try again."""
        retry_at_s, failure = self._known.get(artifact, (0.0, None))
        if failure is not None and monotonic() < retry_at_s:
            raise failure

    def note(self, artifact: Digest, error: Exception) -> OctetError:
        """What is shown of it from now on."""
        failure = error if isinstance(error, OctetError) else NotReady(f"{type(error).__name__}: {error}")
        failure.retry_after_s = failure.retry_after_s or _RETRY_S
        with self._lock:
            self._known.pop(artifact, None)
            self._known[artifact] = monotonic() + _RETRY_S, failure
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return failure

    def forget(self, artifact: Digest) -> None:
        with self._lock:
            self._known.pop(artifact, None)
