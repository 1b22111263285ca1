"""The control plane's background tasks, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from service.api.oip.address import parse_address, parse_addresses
from service.api.services import Services
from service.core.cluster.roles import pool_of
from service.core.cluster.settings import Role
from service.db import Watch
from service.runtime.trust import Trust
from service.workers.inference import Reference
from service.workers.inference.artifacts import StoredArtifacts
from service.workers.inference.handover import loaded_in, take_over
from service.workers.routing.members import BEATS

if TYPE_CHECKING:
    from service.workers.sampling import Sampler

_SAVE_USAGE_S = 1.0  # if the process is killed, at most the usage of this time is lost
_LOOK_FOR_NOTIFICATION_S = 0.2


@asynccontextmanager
async def at_work(services: Services) -> AsyncIterator[asyncio.Event]:
    """Runs the background tasks. Yields an event that is set when the server is ready for requests. Closes `services`
    on exit.
    """
    welcome = asyncio.Event()
    reaching = asyncio.create_task(services.plane.run())
    saving = asyncio.create_task(_save_usage(services))
    # The server already accepts requests while models are being loaded.
    models = asyncio.create_task(_load_first(services, welcome))
    following = asyncio.create_task(_follow_files(services))
    refreshing = asyncio.create_task(_refresh_keys(services))
    await asyncio.sleep(0)  # lets loading begin before the server is announced as ready
    yield welcome
    services.stopping.set()
    for task in (models, saving, following, refreshing, reaching):
        task.cancel()
    await services.registry.close()
    await asyncio.to_thread(services.access.save)


def sampler_of(services: Services) -> Sampler | None:
    """Returns the object that counts the values of sampled requests; None if this process samples none."""
    if not services.settings.saturation_share or not services.registry.targets:
        return None
    from service.workers.counting import CountingBuilds  # imported only if needed: they build and run artifacts
    from service.workers.sampling import Sampler

    settings, layout = services.settings, services.layout
    pool = pool_of(settings, services.host)
    artifacts = StoredArtifacts(layout, services.crashes, Trust.of(settings), services.verifications, pool)
    return Sampler(
        settings.saturation_share,
        CountingBuilds(settings, layout, services.builds, services.models, artifacts),
        services.live,
        services.registry,
        services.plane,
        services.stopping.is_set,
    )


async def _load_first(services: Services, welcome: asyncio.Event) -> None:
    settings, registry = services.settings, services.registry
    if services.routing is not None:
        welcome.set()
        await services.routing.run()
        return
    with registry.starting("models are being loaded"):
        await registry.preload(parse_addresses(settings.preload))
        if settings.role is Role.WORKER and settings.takeover_s:
            await take_over(partial(_held_by_others, services), registry, settings.takeover_s)
    welcome.set()


def _held_by_others(services: Services) -> list[tuple[str, Reference]]:
    """Returns the models that other workers of this worker's pool have in memory."""
    there = services.workers.list(BEATS * services.settings.worker_heartbeat_s)
    return [parse_address(*name) for name in loaded_in(pool_of(services.settings, services.host), there)]


async def _follow_files(services: Services) -> None:
    if services.settings.model_files:
        from service.api.control.model_files import (
            ModelFiles,
        )  # imported only if needed: the module loads packages for MXNet files

        await ModelFiles(services, services.settings.model_files).run()


async def _save_usage(services: Services) -> None:
    while True:
        await asyncio.sleep(_SAVE_USAGE_S)
        await asyncio.to_thread(services.access.save)


async def _refresh_keys(services: Services) -> None:
    """Reads the keys again each time the database notifies of a change."""
    watch = Watch(services.builds.notifications)
    while services.access.is_followed:
        if watch.is_due():
            await asyncio.to_thread(services.access.refresh)
        await asyncio.sleep(_LOOK_FOR_NOTIFICATION_S)
