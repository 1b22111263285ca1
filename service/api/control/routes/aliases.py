"""`/api/v1/models/{name}/promote`, `/rollback` and `/aliases`: choose the version that serves a model's requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from service.api.control import paths, views, wire
from service.api.control.bounded import BoundedRoute
from service.api.control.gate import check_gate
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.errors import Conflict, NotFound
from service.core.models.alias import Alias, check_alias
from service.core.target import TARGETS
from service.workers.catalog import record_aliases

router = APIRouter(prefix=f"{paths.PREFIX}/models", tags=["models"], route_class=BoundedRoute)

_logger = logging.getLogger(__name__)
_UNREADY: dict[int | str, dict[str, Any]] = {
    409: {
        "description": "The version has no successful build, or not the required scores (`gate_not_passed`), or there "
        "is no version to roll back to."
    },
    503: {"description": "The version was built for this machine, but cannot be loaded; nothing changed."},
}


@router.post("/{name}/promote", summary="Promote a version", response_model=wire.Alias, responses=_UNREADY)
async def promote(name: wire.PathName, promotion: wire.Promotion, services: ServicesOf) -> wire.Alias:
    """Sets the alias to the version, for all requests or for `percent` of them.

    The version is loaded and warmed up before the first request is switched to it. Requests that are running are
    completed by the version that they started with.

    With `least`, or the setting `promote_least`, the version needs these scores. `octet evaluate --attach` stores them.
    A rollback needs none.
    """
    check_alias(promotion.alias)

    def change() -> Alias:
        return services.aliases.promote(name, promotion.alias, promotion.version, promotion.percent)

    return views.alias(await _switch(services, "promote", name, promotion.version, change, promotion.least))


@router.post(
    "/{name}/rollback", summary="Roll back to the previous version", response_model=wire.Alias, responses=_UNREADY
)
async def rollback(name: wire.PathName, services: ServicesOf, request: wire.Rollback | None = None) -> wire.Alias:
    """Ends a canary, or returns to the version before the most recent promotion."""
    request = request or wire.Rollback(alias=wire.DEFAULT_ALIAS, away_from=None)
    alias, away_from = request.alias, request.away_from
    known = await run_in_threadpool(_find, services, name, alias)
    back = known.rolled_back(away_from, known.changed_at)

    def change() -> Alias:
        return services.aliases.rollback(name, alias, away_from)

    return views.alias(await _switch(services, "rollback", name, back.version, change))


@router.get("/{name}/aliases", summary="List the aliases of a model", response_model=wire.Aliases)
def get_aliases(name: wire.PathName, services: ServicesOf) -> wire.Aliases:
    services.models.get(name)
    return wire.Aliases(aliases=[views.alias(alias) for alias in services.aliases.list(name)])


@router.delete("/{name}/aliases/{alias}", summary="Delete an alias", status_code=204)
async def remove_alias(name: wire.PathName, alias: wire.PathAlias, services: ServicesOf) -> Response:
    """Without the alias `stable`, the newest ready version serves requests that name no version."""
    await run_in_threadpool(services.aliases.remove, name, alias)
    await _tell(services, name)
    await run_in_threadpool(services.audit.note, "remove_alias", model=name, alias=alias)
    return Response(status_code=204)


async def _switch(
    services: Services,
    action: str,
    name: str,
    version: int,
    change: Callable[[], Alias],
    least: Mapping[str, float] | None = None,
) -> Alias:
    """Loads `version`, changes an alias to it by calling `change`, and notifies all processes of this server.

    Args:
        least: the scores that the version needs in addition to those that the settings require; None for a rollback,
            which needs none.
    """
    await run_in_threadpool(_check_version, services, name, version, least)
    async with AsyncExitStack() as stack:
        # if this server cannot serve the version, only workers on other machines do
        if version in await services.registry.versions(name):
            await stack.enter_async_context(services.registry.prepared(name, version))
        alias = await run_in_threadpool(change)
        await _tell(services, name)
    what = {"version": alias.version, "canary": alias.canary, "canary_percent": alias.canary_percent}
    await run_in_threadpool(services.audit.note, action, model=name, alias=alias.name, **what)
    shared = f", and {alias.canary} to {alias.canary_percent} %" if alias.canary else ""
    _logger.info("%s of model %s is version %d%s", alias.name, name, alias.version, shared)
    return alias


async def _tell(services: Services, name: str) -> None:
    await run_in_threadpool(record_aliases, services.layout, services.aliases, name)
    await services.registry.refresh(name)


def _find(services: Services, name: str, alias: str) -> Alias:
    services.models.get(name)
    found = services.aliases.find(name, alias)
    if found is None:
        raise NotFound(f"model {name!r} has no alias {alias!r}", hint=f"octet promote {name}:VERSION sets one")
    return found


def _check_version(services: Services, name: str, version: int, least: Mapping[str, float] | None) -> None:
    services.models.version(name, version)
    builds = services.builds.serving(name, version, [target.name for target in TARGETS])
    if not builds:
        raise Conflict(
            f"version {version} of model {name!r} has no succeeded build",
            hint=f"octet builds --model {name} shows them",
        )
    if least is not None:
        check_gate(services, name, version, builds, least)
