"""A thread of the control plane that verifies artifacts which wait for a machine like this one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from service.api.services import Services
from service.core.outage import log_trouble

_logger = logging.getLogger(__name__)
_TROUBLE_S = 2.0
_PATIENCE_S = 2.0  # with a database that is away; what is not given back is another's when the lease is over


@contextmanager
def verifying(services: Services, owner: str) -> Iterator[None]:
    """Verifies, until the server is told to stop.

    Args:
        owner: the worker that it is done as.
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
    from service.workers.verifier import Verifier  # what runs artifacts is not for every server

    Verifier(
        services.verifications, services.layout, services.settings, owner, pool=services.pool, targets=targets
    ).run(services.stopping)


def _is_wanted(services: Services) -> bool:
    """Returns True when a verification waits, and False when the server stops before."""
    verifications, stop = services.verifications, services.stopping
    while not stop.is_set():
        try:
            rung = verifications.bell.rung()
            if verifications.any_to_claim(services.pool, services.registry.targets):
                return True
            verifications.bell.wait(rung, stop)
        except Exception as error:  # the database is gone: that may pass
            log_trouble(_logger, error, "verifications could not be looked for")
            stop.wait(_TROUBLE_S)
    return False
