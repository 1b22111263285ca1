"""`DELETE /api/v1/models/{name}`: deletes a model, or one version of it."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from service.api.control import paths, wire
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.errors import NotFound
from service.core.models.model import Deleted
from service.workers.catalog import delete_model

router = APIRouter(prefix=f"{paths.PREFIX}/models", tags=["models"])

_logger = logging.getLogger(__name__)
_REFUSED: dict[int | str, dict[str, Any]] = {409: {"description": "An alias refers to it, and `force` is not set."}}

Force = Annotated[bool, Query(description="Delete it even if an alias refers to it, and the alias with it.")]


@router.delete("/{name}", summary="Delete a model", status_code=202, response_model=wire.Deleted, responses=_REFUSED)
async def delete_whole_model(name: wire.PathName, services: ServicesOf, force: Force = False) -> wire.Deleted:
    """Deletes the model with all its versions. Requests that are running are still answered. Running builds are
    canceled unless another model requested them too. The next garbage collection frees the space of the files.
    """
    return _to_wire(await delete(services, name, force=force))


@router.delete(
    "/{name}/versions/{version}",
    summary="Delete a version of a model",
    status_code=202,
    response_model=wire.Deleted,
    responses=_REFUSED,
)
async def delete_version(
    name: wire.PathName, version: wire.PathVersion, services: ServicesOf, force: Force = False
) -> wire.Deleted:
    """Deletes one version; deleting the last version deletes the model. The remaining versions serve requests that name
    no version.
    """
    return _to_wire(await delete(services, name, version, force=force))


async def delete(services: Services, name: str, number: int | None = None, *, force: bool = False) -> Deleted:
    """Deletes a model, or one version of it, from the database, the store's index, and this server's memory.

    Raises:
        NotFound: the model or version does not exist.
        Conflict: an alias refers to a version that would be deleted, and `force` is not set.
    """

    def forget() -> tuple[Deleted, bool]:
        deleted = delete_model(services.layout, services.models, services.aliases, name, number, force=force)
        services.audit.note("delete", model=name, versions=list(deleted.versions), aliases=list(deleted.aliases))
        return deleted, _is_gone(services, name)

    deleted, entirely = await run_in_threadpool(forget)
    await services.registry.deleted(name, deleted.versions, entirely=entirely)
    _logger.info("deleted %s: versions %s", name, ", ".join(map(str, deleted.versions)))
    return deleted


def _is_gone(services: Services, name: str) -> bool:
    try:
        services.models.get(name)
    except NotFound:
        return True
    return False


def _to_wire(deleted: Deleted) -> wire.Deleted:
    return wire.Deleted(
        name=deleted.model, versions=list(deleted.versions), aliases=list(deleted.aliases), builds=deleted.builds
    )
