"""A thread of the control plane that verifies artifacts for a machine of this type."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from service.api.services import Services
from service.core.system.outage import log_trouble

_logger = logging.getLogger(__name__)
_TROUBLE_S = 2.0
_PATIENCE_S = 2.0  # how long to wait for an unreachable database; a lease that could not be released expires by itself


@contextmanager
def verifying(services: Services, owner: str) -> Iterator[None]:
    """Verifies artifacts until the server stops.

    Args:
        owner: the worker id under which the server claims verifications.
    """
    thread = threading.Thread(target=_verify, args=(services, owner), name="octet-verify", daemon=True)
    thread.start()
    yield
    services.stopping.set()
    thread.join(_PATIENCE_S)


def _verify(services: Services, owner: str) -> None:
    targets = services.registry.targets
    if not _is_wanted(services):
        return
    from service.workers.verifier import Verifier  # imported only if needed: not every server runs artifacts

    Verifier(
        services.verifications, services.layout, services.settings, owner, pool=services.pool, targets=targets
    ).run(services.stopping)


def _is_wanted(services: Services) -> bool:
    """Waits until an artifact has to be verified, and returns true. Returns false if the server stops before."""
    verifications, stop = services.verifications, services.stopping
    while not stop.is_set():
        try:
            count = verifications.notifications.count()
            if verifications.any_to_claim(services.pool, services.registry.targets):
                return True
            verifications.notifications.wait(count, stop)
        except Exception as error:  # the database is unreachable, perhaps only for a while
            log_trouble(_logger, error, "cannot check for waiting verifications")
            stop.wait(_TROUBLE_S)
    return False
