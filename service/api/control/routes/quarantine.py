"""`/api/v1/quarantine`: artifacts that are no longer run, because the server crashed while running them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from service.api.access.tenants import is_visible, tenant
from service.api.control import paths, wire
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.cluster.crash import Record
from service.core.digest import Digest
from service.core.errors import NotFound

router = APIRouter(prefix=f"{paths.PREFIX}/quarantine", tags=["artifacts"])


@router.get("", summary="List the artifacts in quarantine", response_model=wire.Quarantine)
def list_quarantine(services: ServicesOf) -> wire.Quarantine:
    """Returns each quarantined artifact with its crashes and with the models that use the artifact."""
    held = services.crashes.quarantined()
    shown = [_to_wire(services, artifact, record) for artifact, record in held.items()]
    return wire.Quarantine(artifacts=[each for each in shown if each.models or not tenant.get()])


@router.delete("/{digest}", summary="Release an artifact from quarantine", response_model=wire.Quarantined)
async def forgive(digest: wire.PathDigest, services: ServicesOf) -> wire.Quarantined:
    """The next request for one of the artifact's models loads the artifact again. Earlier crashes of the artifact no
    longer count.
    """
    artifact = Digest(digest)
    shown = await run_in_threadpool(_find_quarantined, services, artifact)
    await services.registry.forgive(artifact)
    await run_in_threadpool(services.audit.note, "forgive", artifact=artifact)
    return shown


def _find_quarantined(services: Services, artifact: Digest) -> wire.Quarantined:
    record = services.crashes.quarantined().get(artifact)
    if record is None:
        raise NotFound(f"artifact {artifact} is not in quarantine", hint="octet quarantine lists those in quarantine")
    return _to_wire(services, artifact, record)


def _to_wire(services: Services, artifact: Digest, record: Record) -> wire.Quarantined:
    return wire.Quarantined(
        artifact=artifact,
        crashes=list(record.crashes),
        how=record.how,
        models=[
            wire.Affected(name=build.model, version=build.version, target=build.target)
            for build in services.builds.with_artifact(artifact)
            if is_visible(build.model)
        ],
    )
