"""Sends the API keys to the data plane."""

from __future__ import annotations

from service.api.services import Services
from service.core.cluster.settings import Role
from service.workers.data_plane import orders


def send_keys(services: Services) -> None:
    """Sends the keys to the data plane, if they have changed."""
    settings = services.settings
    # only workers accept the cluster's key
    cluster_key = settings.key_of_cluster if settings.role is Role.WORKER else ""
    services.plane.order(orders.keys(services.access.requires_key_now(), services.access.keys_with_use(), cluster_key))


async def apply_key_change(services: Services) -> None:
    """Must be called after this process changed the keys. Returns when the data plane uses the new keys."""
    services.access.changed()
    send_keys(services)
    # the response shows that the data plane has processed the orders that were sent before
    await services.plane.gather()
