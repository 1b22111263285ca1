"""The API keys, told to the data plane."""

from __future__ import annotations

from service.api.services import Services
from service.core.settings import Role
from service.workers.data_plane import orders


def tell(services: Services) -> None:
    """Says which keys there are, where that has changed."""
    settings = services.settings
    cluster_key = settings.key_of_cluster if settings.role is Role.WORKER else ""  # an API is nobody's worker
    services.plane.order(orders.keys(services.access.look(), services.access.known(), cluster_key))


async def changed(services: Services) -> None:
    """Notes that this process changed the keys. Returns when the data plane goes by what they are now."""
    services.access.changed()
    tell(services)
    await services.plane.gather()  # what was said before is heard by then
