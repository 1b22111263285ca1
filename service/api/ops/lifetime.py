"""What the control plane does beside answering requests, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.api.oip.address import parse_addresses
from service.api.services import Services
from service.db import Watch

_SAVE_USAGE_S = 1.0  # what is lost of it when this process is killed
_LOOK_AT_BELL_S = 0.2


@asynccontextmanager
async def at_work(services: Services) -> AsyncIterator[None]:
    """Ends what `services` hold when it is left."""
    wanted, routing = parse_addresses(services.settings.preload), services.routing
    reaching = asyncio.create_task(services.plane.run())
    saving = asyncio.create_task(_save_usage(services))
    # Requests are taken meanwhile.
    models = asyncio.create_task(routing.run() if routing is not None else services.registry.preload(wanted))
    following = asyncio.create_task(_follow_files(services))
    refreshing = asyncio.create_task(_refresh_keys(services))
    await asyncio.sleep(0)  # so that it has begun before the server is announced as ready
    yield
    services.stopping.set()
    for task in (models, saving, following, refreshing, reaching):
        task.cancel()
    await services.registry.close()
    await asyncio.to_thread(services.access.save)


async def _follow_files(services: Services) -> None:
    if services.settings.model_files:
        from service.api.control.model_files import ModelFiles  # what packs files of MXNet is not for every server

        await ModelFiles(services, services.settings.model_files).run()


async def _save_usage(services: Services) -> None:
    while True:
        await asyncio.sleep(_SAVE_USAGE_S)
        await asyncio.to_thread(services.access.save)


async def _refresh_keys(services: Services) -> None:
    """Looks at keys in a database where it rings, which it does when they change."""
    watch = Watch(services.builds.bell)
    while services.access.is_followed:
        if watch.is_due():
            await asyncio.to_thread(services.access.refresh)
        await asyncio.sleep(_LOOK_AT_BELL_S)
